"""Text before the model: cleaning, voice design, cutting long texts."""
