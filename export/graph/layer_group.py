"""The layer kinds of one transformer stack."""

from __future__ import annotations

from dataclasses import dataclass

from device_profiles.weight_formats import LayerKind


@dataclass(frozen=True)
class LayerGroup:
    """Kinds of a stack's four linear layers, each of which may have a weight format of its own.

    Attributes:
        qkv: Into attention.
        output: Out of attention.
        gate_up: Into the MLP.
        down: Out of the MLP.
    """

    qkv: LayerKind
    output: LayerKind
    gate_up: LayerKind
    down: LayerKind

    @staticmethod
    def named(name: str) -> LayerGroup:
        """The kinds ``NAME.qkv``, ``NAME.output``, ``NAME.gate_up`` and ``NAME.down``."""
        return LayerGroup(
            *(LayerKind(f"{name}.{part}") for part in ("qkv", "output", "gate_up", "down"))
        )
