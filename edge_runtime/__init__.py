"""Runtime: loads a bundle and speaks, within the board's memory."""
