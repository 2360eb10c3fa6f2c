"""Which weight format each kind of layer gets: `--weights` as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Literal

PlanName = Literal["f32", "f16", "int8", "int4"]


class LayerKind(Enum):
    """Layers that may differ in weight format."""

    LM = "lm"
    PATCH_ENCODER = "patch_encoder"
    FLOW = "flow"
    HEAD = "head"
    """Small projections, quantizer and stop head: kept in f32 when the rest is integer."""
    EMBEDDING = "embedding"


class WeightFormat(Enum):
    """How one linear layer's weights are stored and multiplied."""

    F32 = "f32"
    F16 = "f16"
    """Stored f16, widened to f32 when the session loads."""
    INT8 = "int8"
    """Symmetric per output channel; activations quantized per call (DynamicQuantizeMatMul)."""
    INT8_BLOCK = "int8_block"
    """Symmetric in blocks along the input axis (MatMulNBits, 8 bits)."""
    INT4_BLOCK = "int4_block"
    """Symmetric in blocks of 32, scales searched for least squared error (MatMulNBits, 4 bits)."""


@dataclass(frozen=True)
class WeightPlan:
    """Format per layer kind."""

    name: PlanName
    formats: Mapping[LayerKind, WeightFormat]

    def __getitem__(self, kind: LayerKind) -> WeightFormat:
        return self.formats[kind]

    @staticmethod
    def named(name: PlanName) -> WeightPlan:
        """The plan behind a `--weights` value."""
        f32, f16 = WeightFormat.F32, WeightFormat.F16
        int8, block8, block4 = WeightFormat.INT8, WeightFormat.INT8_BLOCK, WeightFormat.INT4_BLOCK
        # Order: LM, patch encoder, flow, heads, embedding table. Flow error adds up over the
        # solver's steps, so int4 stops at the LM; see docs/decisions.md.
        table = {
            "f32": (f32, f32, f32, f32, f32),
            "f16": (f16, f16, f16, f16, f16),
            "int8": (block8, int8, int8, f32, f16),
            "int4": (block4, int8, int8, f32, f16),
        }
        kinds = tuple(LayerKind)
        return WeightPlan(name, MappingProxyType(dict(zip(kinds, table[name], strict=True))))
