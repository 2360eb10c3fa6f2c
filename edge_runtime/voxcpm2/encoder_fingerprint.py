"""Which audio encoder a bundle has: what two equal ones make of a clip is the same."""

from __future__ import annotations

import hashlib

from edge_runtime.bundle import Bundle
from edge_runtime.voxcpm2.spec import VoxCpm2Spec


def encoder_fingerprint(bundle: Bundle, spec: VoxCpm2Spec) -> str:
    """SHA-256 over the encoder's files and sizes; bundles that differ elsewhere share it."""
    graph = spec.graphs.get("vae_encoder", "")
    weights = f"{graph.removesuffix('.onnx')}.weights"
    files = bundle.manifest.files
    parts = [files[name].sha256 for name in (graph, weights) if name in files]
    parts += [spec.vae_encoder.model_dump_json(), f"{spec.patch_size} {spec.latent_dim}"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
