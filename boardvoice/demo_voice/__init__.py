"""The voice that is in the package: its checkpoint, and how text is written for it."""
