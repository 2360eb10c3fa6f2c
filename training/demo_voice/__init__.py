"""The demo voice: a small model of VoxCPM2's architecture that says kiosk and robot English."""
