"""The NPU: what a bundle has for it, and the flow estimator on it."""
