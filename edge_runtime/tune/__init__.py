"""Tuning: which of the ways to run a bundle is the fastest on this very device."""
