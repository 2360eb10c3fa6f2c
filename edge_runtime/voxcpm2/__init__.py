"""VoxCPM2 at run time."""
