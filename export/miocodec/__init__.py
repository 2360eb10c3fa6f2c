"""MioCodec checkpoints to bundles."""
