"""Back ends: what runs a graph."""
