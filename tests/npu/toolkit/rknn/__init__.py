"""Passes for rknn-toolkit2 in tests of the worker; see api.py."""
