"""Lazy readers of checkpoint files."""
