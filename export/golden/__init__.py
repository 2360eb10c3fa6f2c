"""Golden vectors at export: graphs run once, a piece at a time."""
