"""Convolutions, group norms and residual blocks of MioCodec's wave decoder.

Source: `module/istft_head.py` of github.com/Aratako/MioCodec (commit 7747354).
"""

from __future__ import annotations

import numpy as np

from edge_runtime.errors import CheckpointError
from export.checkpoint.tensor_source import FloatArray
from export.graph.builder import GraphBuilder
from export.graph.parameters import Parameters
from export.graph.windowed_attention import silu

_GROUP_EPS = 1e-6
_SNAKE_EPS = np.float32(1e-9)


def conv(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    *,
    inputs: int,
    outputs: int,
    kernel: int,
    groups: int = 1,
) -> str:
    """Emit a convolution that keeps the number of frames: [1, inputs, T] to [1, outputs, T]."""
    weight = params.array("weight", outputs, inputs // groups, kernel)
    operands = [value, graph.weight(weight), graph.weight(params.array("bias", outputs), "bias")]
    return graph.node(
        "Conv", operands, name="conv", kernel_shape=[kernel], pads=[kernel // 2, kernel // 2],
        group=groups,
    )  # fmt: skip


def group_norm(
    graph: GraphBuilder, value: str, params: Parameters, channels: int, groups: int
) -> str:
    """Emit a group norm over all frames of [1, channels, T]."""
    ones, zeros = (np.full(groups, fill, np.float32) for fill in (1, 0))
    grouped = graph.reshape(value, (1, groups, -1), name="grouped")
    normed = graph.node(
        "InstanceNormalization",
        [grouped, graph.weight(ones, "ones"), graph.weight(zeros, "zeros")],
        epsilon=_GROUP_EPS, name="normed",
    )  # fmt: skip
    normed = graph.reshape(normed, (1, channels, -1), name="channels")
    scale, bias = (params.array(name, channels).reshape(1, -1, 1) for name in ("weight", "bias"))
    scaled = graph.node("Mul", [normed, graph.weight(scale, "norm.weight")], name="scaled")
    return graph.node("Add", [scaled, graph.weight(bias, "norm.bias")], name="norm")


def residual_block(
    graph: GraphBuilder, value: str, params: Parameters, channels: int, kernel: int, groups: int
) -> str:
    """Emit norm, SiLU, convolution, twice, and the sum with what came in."""
    inner = value
    for index in (1, 2):
        with graph.scope(str(index)):
            inner = group_norm(graph, inner, params.at(f"norm{index}"), channels, groups)
            inner = conv(
                graph, silu(graph, inner), params.at(f"conv{index}"),
                inputs=channels, outputs=channels, kernel=kernel,
            )  # fmt: skip
    return graph.node("Add", [value, inner], name="sum")


def upsample(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    *,
    inputs: int,
    outputs: int,
    kernel: int,
    factor: int,
) -> str:
    """Emit a transposed convolution: [1, inputs, T] to [1, outputs, T * factor]."""
    weight = _normed_weight(params, inputs, outputs, kernel)
    operands = [value, graph.weight(weight), graph.weight(params.array("bias", outputs), "bias")]
    edge = (kernel - factor) // 2
    return graph.node(
        "ConvTranspose", operands, name="upsampled", kernel_shape=[kernel], strides=[factor],
        pads=[edge, edge],
    )  # fmt: skip


def snake_beta(
    graph: GraphBuilder, value: str, params: Parameters, channels: int, shape: tuple[int, ...]
) -> str:
    """Emit ``x + sin(a x)^2 / b`` with ``a`` and ``b`` stored as logarithms.

    Args:
        graph: Graph under construction.
        value: What is activated.
        params: Parameters.
        channels: Channels.
        shape: How they are laid out, to be broadcast.
    """
    alpha, beta = (np.exp(params.array(name, channels)) for name in ("alpha", "beta"))
    inverse = (np.float32(1) / (beta + _SNAKE_EPS)).astype(np.float32)
    if not (np.isfinite(alpha).all() and np.isfinite(inverse).all()):
        raise CheckpointError(
            f"{params.prefix.rstrip('.')}: an activation's logarithm is out of range.",
            remedy="Download the checkpoint again.",
        )
    angle = graph.node("Mul", [value, graph.weight(alpha.reshape(shape), "alpha")], name="angle")
    sine = graph.node("Sin", [angle], name="sin")
    square = graph.node("Mul", [sine, sine], name="square")
    scaled = graph.node(
        "Mul", [square, graph.weight(inverse.reshape(shape), "inverse_beta")], name="scaled"
    )
    return graph.node("Add", [value, scaled], name="snake")


def _normed_weight(params: Parameters, inputs: int, outputs: int, kernel: int) -> FloatArray:
    """Weight of a transposed convolution, weight normalization (per input channel) resolved."""
    if params.has("weight"):
        return params.array("weight", inputs, outputs, kernel)
    parts = params.at("parametrizations", "weight")
    direction = parts.array("original1", inputs, outputs, kernel).astype(np.float64)
    gain = parts.array("original0", inputs, 1, 1).astype(np.float64)
    norm = np.sqrt(np.square(direction).sum(axis=(1, 2), keepdims=True))
    weight: FloatArray = (direction * (gain / norm)).astype(np.float32)
    return weight
