"""Prepared bundles: graphs optimized for this CPU, their packed weights mapped from files."""
