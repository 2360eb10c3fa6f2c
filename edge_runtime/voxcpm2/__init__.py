"""VoxCPM2 at run time; `load` is what `edge_runtime.voice` calls for this family."""

from __future__ import annotations

from device_profiles.schema import Profile
from edge_runtime.backends.protocol import Backend
from edge_runtime.bundle import Bundle
from edge_runtime.voxcpm2.speaker import Speaker


def load(bundle: Bundle, backend: Backend, profile: Profile) -> Speaker:
    """Load a bundle of this family."""
    return Speaker(bundle, backend, profile)
