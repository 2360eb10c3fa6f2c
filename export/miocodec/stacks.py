"""MioCodec's transformer stacks in the words of the graph builder."""

from __future__ import annotations

from device_profiles.weight_formats import LayerKind
from edge_runtime.miocodec.spec import StackSpec
from export.graph.layer_group import LayerGroup
from export.graph.windowed_attention import StackKinds, WindowedSpec
from export.miocodec.config import StackConfig


def content_kinds() -> StackKinds:
    """Kinds of what comes before the quantizer."""
    return StackKinds(LayerGroup.named("codec.content"), LayerKind.CODEC_HEAD)


def wave_kinds() -> StackKinds:
    """Kinds of what comes after it."""
    return StackKinds(LayerGroup.named("codec.wave"), LayerKind.CODEC_HEAD)


def windowed_spec(config: StackConfig) -> WindowedSpec:
    """Sizes of a stack, to build it."""
    return WindowedSpec(
        hidden=config.dim,
        ffn=config.ffn,
        heads=config.n_heads,
        layers=config.n_layers,
        side=config.side,
        eps=config.norm_eps,
        condition=config.adanorm_condition_dim or 0,
    )


def stack_spec(config: StackConfig) -> StackSpec:
    """Sizes of a stack, to run it."""
    return StackSpec(
        hidden=config.dim,
        outputs=config.outputs,
        head_size=config.head_size,
        theta=config.rope_theta,
        block=windowed_spec(config).block,
        reach=config.side * config.n_layers,
    )
