"""Exporters: from official checkpoints to bundles, without PyTorch."""
