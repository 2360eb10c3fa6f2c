"""Prepared bundles: graphs optimized for this CPU, their packed weights in files the kernel can drop."""
