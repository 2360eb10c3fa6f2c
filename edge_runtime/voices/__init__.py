"""Voices that were added once: clip, latents, transcript, in the state folder."""
