"""VoxCPM2: one module per graph."""
