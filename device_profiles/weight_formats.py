"""The words in which a weight format is chosen: layer kinds, formats, and which go together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Literal

PlanName = Literal["f32", "f16", "int8", "int4"]
# Stands for any one part of a kind's name.
_ANY = "*"


class WeightFormat(Enum):
    """How one layer's weights are stored and multiplied.

    Blocks run along the input axis; a layer with fewer inputs than a block takes blocks of 32.
    """

    F32 = "f32"
    F16 = "f16"
    """Stored f16, widened to f32 when the session loads: saves disk, not memory."""
    INT8 = "int8"
    """Symmetric per output channel; activations quantized per call (DynamicQuantizeMatMul)."""
    INT8_ROWS = "int8-rows"
    """The same with activations scaled row by row: for layers whose rows differ in size."""
    INT8_32 = "int8-32"
    """In blocks with zero points (MatMulNBits, 8 bits)."""
    INT8_128 = "int8-128"
    """Symmetric in blocks (MatMulNBits, 8 bits)."""
    INT4_32 = "int4-32"
    """In blocks, scales and zero points searched (MatMulNBits, 4 bits)."""
    INT4_128 = "int4-128"
    INT4_32_SYM = "int4-32-sym"
    """The same without zero points: less exact; on ARM, ONNX Runtime's fast kernels (KleidiAI)
    took no others before pull request 27751 of March 2026."""
    INT4_128_SYM = "int4-128-sym"

    @property
    def bits(self) -> int:
        """Bits per weight."""
        return {"f32": 32, "f16": 16}.get(self.value) or int(self.value[3])

    @property
    def block(self) -> int:
        """Inputs per block; 0 where a format has none."""
        size = [part for part in self.value.split("-")[1:] if part.isdigit()]
        return int(size[0]) if size else 0

    @property
    def symmetric(self) -> bool:
        """Whether zero is the same code everywhere."""
        return self not in (
            WeightFormat.INT8_32,
            WeightFormat.INT4_32,
            WeightFormat.INT4_128,
        )


class LayerKind(Enum):
    """Layers that may differ in weight format; dots group them."""

    LM_BASE_QKV = "lm.base.qkv"
    LM_BASE_OUTPUT = "lm.base.output"
    LM_BASE_GATE_UP = "lm.base.gate_up"
    LM_BASE_DOWN = "lm.base.down"
    LM_FUSION = "lm.fusion"
    """What joins the base LM's rows with the audio rows before the residual LM."""
    LM_RESIDUAL_QKV = "lm.residual.qkv"
    LM_RESIDUAL_OUTPUT = "lm.residual.output"
    LM_RESIDUAL_GATE_UP = "lm.residual.gate_up"
    LM_RESIDUAL_DOWN = "lm.residual.down"
    PATCH_ENCODER_QKV = "patch_encoder.qkv"
    PATCH_ENCODER_OUTPUT = "patch_encoder.output"
    PATCH_ENCODER_GATE_UP = "patch_encoder.gate_up"
    PATCH_ENCODER_DOWN = "patch_encoder.down"
    FLOW_QKV = "flow.qkv"
    FLOW_OUTPUT = "flow.output"
    FLOW_GATE_UP = "flow.gate_up"
    FLOW_DOWN = "flow.down"
    HEAD_QUANTIZER = "head.quantizer"
    """Into and out of the scalar quantizer."""
    HEAD_MU = "head.mu"
    """From both LMs to the flow's conditioning."""
    HEAD_STOP = "head.stop"
    HEAD_PATCH_ENCODER = "head.patch_encoder"
    """Into the patch encoder, and from it to the LM."""
    HEAD_FLOW = "head.flow"
    """Into and out of the flow estimator, its time and condition tokens."""
    EMBEDDING = "embedding"
    CODEC_CONTENT_QKV = "codec.content.qkv"
    CODEC_CONTENT_OUTPUT = "codec.content.output"
    CODEC_CONTENT_GATE_UP = "codec.content.gate_up"
    CODEC_CONTENT_DOWN = "codec.content.down"
    CODEC_WAVE_QKV = "codec.wave.qkv"
    CODEC_WAVE_OUTPUT = "codec.wave.output"
    CODEC_WAVE_GATE_UP = "codec.wave.gate_up"
    CODEC_WAVE_DOWN = "codec.wave.down"
    CODEC_GLOBAL = "codec.global"
    """The global encoder's pointwise layers."""
    CODEC_HEAD = "codec.head"
    """Into and out of the codec's quantizer, what the voice modulates with, the spectrum."""

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Formats that this kind may have."""
        if self is LayerKind.EMBEDDING:  # rows are gathered from a mapped file
            return (WeightFormat.F32, WeightFormat.F16)
        return tuple(WeightFormat)

    def matches(self, selector: str) -> bool:
        """Whether a selector means this kind: its name, the start of it, or ``*`` for a part."""
        wanted, own = selector.split("."), self.value.split(".")
        return len(wanted) <= len(own) and all(
            part in (_ANY, name) for part, name in zip(wanted, own, strict=False)
        )


def chosen_formats(choices: Mapping[str, str]) -> dict[LayerKind, WeightFormat]:
    """Formats of the kinds that a choice speaks of.

    Args:
        choices: Format by selector, such as ``{"lm": "int4-32", "lm.*.down": "int8-128"}``. Where
            several mean one kind, the one that names most parts wins, then the last one.

    Raises:
        ValueError: A selector that means no kind, or a format that a kind cannot have; the text
            names the kind and what is allowed.
    """
    found: dict[LayerKind, WeightFormat] = {}
    for selector in sorted(choices, key=_named_parts):
        kinds = [kind for kind in LayerKind if kind.matches(selector)]
        if not kinds:
            raise ValueError(f"no layer kind is called {selector!r}; there are {_names(LayerKind)}")
        for kind in kinds:
            found[kind] = _allowed(kind, choices[selector])
    return found


def _allowed(kind: LayerKind, name: str) -> WeightFormat:
    for format_ in kind.formats:
        if format_.value == name:
            return format_
    raise ValueError(f"{kind.value} cannot be {name!r}; it may be {_names(kind.formats)}")


def _named_parts(selector: str) -> int:
    return sum(part != _ANY for part in selector.split("."))


def _names(items: Iterable[Enum]) -> str:
    return ", ".join(str(item.value) for item in items)
