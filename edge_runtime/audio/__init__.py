"""Audio at the edges: reading references, writing results, playing them."""
