"""Measuring: what a bundle costs here, and what this machine could do at best."""
