"""What a bundle takes on this device, in memory and on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from device_profiles.schema import Profile
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.session_settings import SessionSettings
from edge_runtime.bundle import Bundle
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_bundle import PreparedBundle, find_prepared
from edge_runtime.resources import Resources, weight_bytes

_MIB = 1 << 20
# As the preparation itself reckons.
_PACKING_BYTES = 256 * _MIB
_DISK_FACTOR, _DISK_SPARE = 2.1, 64 * _MIB
# What speaking holds beside the graphs: Python's libraries and a short request's cache.
_BESIDE = 96 * _MIB


@dataclass(frozen=True)
class Footprint:
    """Bytes.

    Attributes:
        speaking: Anonymous memory while speaking, as the bundle is now.
        packing: What preparing takes at once; 0 where it is prepared or will not be.
        disk: Free disk that preparing needs; 0 likewise.
        prepared: The prepared files, or None.
    """

    speaking: int
    packing: int
    disk: int
    prepared: PreparedBundle | None

    @staticmethod
    def of(bundle: Bundle, profile: Profile, state: Path, root: Path = Path("/")) -> Footprint:
        """Estimate.

        Raises:
            BundleError: The bundle has no graph for the profile's KV cache.
        """
        key = PreparationKey.of(
            bundle, root, kv_dtype=profile.kv.dtype, settings=SessionSettings.of(profile)
        )
        prepared = find_prepared(bundle, key, state)
        costs = prepared.info.costs if prepared is not None else {}
        resources = Resources(OrtBackend(threads=1, spinning=False), profile, costs=costs)
        files = list(bundle.graphs(profile.kv.dtype).values())
        speaking = _BESIDE + sum(resources.cost(bundle, file).session_bytes for file in files)
        weights = [weight_bytes(bundle, file) for file in files]
        small = sum(weights) < profile.memory.prepare_from_mib * _MIB
        if prepared is not None or small or profile.memory.prepare == "never":
            return Footprint(speaking, 0, 0, prepared)
        return Footprint(
            speaking,
            packing=max(weights, default=0) + _PACKING_BYTES,
            disk=int(sum(weights) * _DISK_FACTOR) + _DISK_SPARE,
            prepared=None,
        )
