"""Causal convolutions that carry their left context as explicit state, and the Snake activation.

Source: `audio_vae_v2.py` of voxcpm 2.0.3. Its streaming decoder pads the first chunk with zeros
and later ones with what came before; here both are the same graph with a state input.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from export.checkpoint.tensor_source import FloatArray
from export.graph.builder import GraphBuilder
from export.graph.parameters import Parameters

_END = 2**31 - 1


@dataclass
class StatePorts:
    """State inputs and outputs of one streaming graph.

    Attributes:
        shapes: Shape [1, channels, frames] of each state so far; they start as zeros.
    """

    graph: GraphBuilder
    shapes: list[tuple[int, int, int]] = field(default_factory=list)

    def extend(self, value: str, channels: int, frames: int) -> str:
        """Put the state's frames before ``value`` [1, C, T] and keep the new last ones."""
        if frames == 0:
            return value
        index = len(self.shapes)
        shape = (1, channels, frames)
        self.shapes.append(shape)
        state = self.graph.input(f"state_{index}", shape)
        longer = self.graph.node("Concat", [state, value], axis=2, name="with_state")
        kept = self.graph.slice(longer, -frames, _END, 2, name="kept")
        self.graph.output(kept, f"next_state_{index}", shape)
        return longer


def conv_weight(params: Parameters, *shape: int) -> FloatArray:
    """Weight of a convolution, with weight normalization (along the first axis) resolved."""
    if params.has("weight"):
        return params.array("weight", *shape)
    direction = params.array("weight_v", *shape).astype(np.float64)
    gain = params.array("weight_g", shape[0], *(1 for _ in shape[1:])).astype(np.float64)
    norm = np.sqrt(np.square(direction).sum(axis=tuple(range(1, len(shape))), keepdims=True))
    weight: FloatArray = (direction * (gain / norm)).astype(np.float32)
    return weight


def snake(graph: GraphBuilder, value: str, params: Parameters, channels: int) -> str:
    """Emit ``x + sin(alpha x)^2 / alpha`` with alpha broadcast over frames (arXiv:2006.08195)."""
    alpha = params.array("alpha", 1, channels, 1)
    inverse = np.float32(1) / (alpha + np.float32(1e-9))
    angle = graph.node("Mul", [value, graph.weight(alpha, "alpha")], name="angle")
    sine = graph.node("Sin", [angle], name="sin")
    square = graph.node("Mul", [sine, sine], name="square")
    scaled = graph.node("Mul", [square, graph.weight(inverse, "inverse_alpha")], name="scaled")
    return graph.node("Add", [value, scaled], name="snake")


def causal_conv(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    states: StatePorts,
    *,
    inputs: int,
    outputs: int,
    kernel: int,
    left: int,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> str:
    """Emit a convolution that sees ``left`` frames of the past and none of the future.

    Args:
        graph: Graph under construction.
        value: [1, inputs, T]; T is a multiple of ``stride``.
        params: Parameters of the convolution.
        states: State ports of the graph.
        inputs: Input channels.
        outputs: Output channels.
        kernel: Taps.
        left: Frames of the past.
        stride: Input frames per output frame.
        dilation: Frames between taps.
        groups: Channel groups.
        bias: Whether the checkpoint has one.

    Returns:
        [1, outputs, T / stride].
    """
    longer = states.extend(value, inputs, left)
    weight = conv_weight(params, outputs, inputs // groups, kernel)
    operands = [longer, graph.weight(weight)]
    if bias:
        operands.append(graph.weight(params.array("bias", outputs), "bias"))
    return graph.node(
        "Conv",
        operands,
        name="conv",
        kernel_shape=[kernel],
        strides=[stride],
        dilations=[dilation],
        group=groups,
    )


def causal_upsample(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    states: StatePorts,
    *,
    inputs: int,
    outputs: int,
    stride: int,
) -> str:
    """Emit a causal transposed convolution of kernel 2 * stride, as a plain one plus a reshape.

    Output frame ``t * stride + j`` sees input frames t (tap j) and t - 1 (tap stride + j): a
    convolution of two taps with ``outputs * stride`` channels, unfolded in time.

    Args:
        graph: Graph under construction.
        value: [1, inputs, T].
        params: Parameters of the transposed convolution (weight [inputs, outputs, 2 * stride]).
        states: State ports of the graph.
        inputs: Input channels.
        outputs: Output channels.
        stride: Output frames per input frame.

    Returns:
        [1, outputs, T * stride].
    """
    longer = states.extend(value, inputs, 1)
    taps = conv_weight(params, inputs, outputs, 2 * stride)
    taps = taps.reshape(inputs, outputs, 2, stride).transpose(1, 3, 0, 2)
    # Oldest first: the second half of the taps belongs to frame t - 1.
    weight = np.ascontiguousarray(taps[..., ::-1]).reshape(outputs * stride, inputs, 2)
    bias = np.repeat(params.array("bias", outputs), stride)
    folded = graph.node(
        "Conv",
        [longer, graph.weight(weight), graph.weight(bias, "bias")],
        name="conv",
        kernel_shape=[2],
    )
    if stride == 1:
        return folded
    split = graph.reshape(folded, (1, outputs, stride, -1))
    turned = graph.node("Transpose", [split], perm=[0, 1, 3, 2], name="in_time")
    return graph.reshape(turned, (1, outputs, -1), name="upsampled")
