"""Profiles: one per board, as data."""
