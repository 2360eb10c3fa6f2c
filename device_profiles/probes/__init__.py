"""Probes of one kind of fact each; all take the root of a file tree."""
