"""Rockchip's rknn-toolkit2, in an environment and a process of its own."""
