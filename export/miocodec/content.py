"""The graphs from WavLM's features to the quantizer's latents and to a voice.

Source: `forward_content` and `module/global_encoder.py` of github.com/Aratako/MioCodec
(commit 7747354).
"""

from __future__ import annotations

import numpy as np
import onnx

from device_profiles.weight_formats import LayerKind
from export.graph.builder import GraphBuilder
from export.graph.linear import LinearWeight, linear
from export.graph.parameters import Parameters
from export.graph.windowed_attention import layer_norm, windowed_stack
from export.miocodec.config import GlobalConfig, MioCodecConfig
from export.miocodec.convolutions import conv
from export.miocodec.stacks import content_kinds, windowed_spec

_NORM_EPS = 1e-6
_POOL_NORM_EPS = 1e-5
_KERNEL = 7
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-4, 1e4


def build_content(
    graph: GraphBuilder, params: Parameters, config: MioCodecConfig
) -> onnx.ModelProto:
    """Build the graph to latents.

    Downsampling and projection are both linear, and one product here.

    Inputs: ``features`` f32 [rows, width], normalised over time, and those of `windowed_stack`.
    Outputs: ``latents`` f32 [rows / downsampling, levels].
    """
    stack, encoder = config.local_encoder.init_args, params.at("local_encoder")
    factor, count = config.config.downsample_factor, len(config.local_quantizer.init_args.levels)
    value = graph.input("features", ["rows", stack.dim])
    with graph.scope("local_encoder"):
        value = windowed_stack(graph, value, encoder, windowed_spec(stack), content_kinds())
        if stack.output_dim is not None:
            weight = encoder.linear("output_proj", stack.output_dim, stack.dim)
            bias = encoder.bias("output_proj", stack.output_dim)
            value = linear(graph, value, weight, LayerKind.CODEC_HEAD, bias=bias, name="output")
    width = stack.outputs
    value = graph.reshape(value, (-1, factor * width), name="pairs")
    weight, bias = _latents(params, width, factor, count)
    value = linear(graph, value, weight, LayerKind.CODEC_HEAD, bias=bias, name="latents")
    graph.output(value, "latents", ["tokens", count])
    return graph.build()


def _latents(
    params: Parameters, width: int, factor: int, count: int
) -> tuple[LinearWeight, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    taps = params.array("conv_downsample.weight", width, width, factor).astype(np.float64)
    shift = params.array("conv_downsample.bias", width).astype(np.float64)
    down = taps.transpose(0, 2, 1).reshape(width, factor * width)
    into = params.array("local_quantizer.proj_in.weight", count, width).astype(np.float64)
    rows = (into @ down).astype(np.float32)
    bias = into @ shift + params.array("local_quantizer.proj_in.bias", count)
    weight = LinearWeight(count, factor * width, lambda start, stop: rows[start:stop])
    return weight, bias.astype(np.float32)


def build_voice(graph: GraphBuilder, params: Parameters, config: MioCodecConfig) -> onnx.ModelProto:
    """Build the global encoder: ConvNeXt blocks, then attentive statistics over the whole clip.

    Inputs: ``features`` f32 [rows, width].
    Outputs: ``voice`` f32 [1, width of a voice].
    """
    sizes, encoder = config.global_encoder.init_args, params.at("global_encoder")
    backbone = encoder.at("backbone")
    value = graph.input("features", ["rows", sizes.input_channels])
    value = _columns(graph, value)
    with graph.scope("embed"):
        value = conv(
            graph, value, backbone.at("embed"),
            inputs=sizes.input_channels, outputs=sizes.dim, kernel=_KERNEL,
        )  # fmt: skip
        value = _norm(graph, _rows(graph, value), backbone.at("norm"), sizes.dim)
    for index in range(sizes.num_layers):
        with graph.scope(f"convnext/{index}"):
            value = _block(graph, value, backbone.at("convnext", index), sizes)
    with graph.scope("norm"):
        value = _norm(graph, value, backbone.at("final_layer_norm"), sizes.dim)
    with graph.scope("pooling"):
        value = _pool(graph, value, encoder.at("pooling"), sizes)
    graph.output(value, "voice", [1, sizes.output_channels])
    return graph.build()


def _block(graph: GraphBuilder, value: str, params: Parameters, sizes: GlobalConfig) -> str:
    """Depthwise convolution, norm, two pointwise layers, added to what came in."""
    width, inner = sizes.dim, sizes.intermediate_dim
    kind = LayerKind.CODEC_GLOBAL
    mixed = conv(
        graph, _columns(graph, value), params.at("dwconv"),
        inputs=width, outputs=width, kernel=_KERNEL, groups=width,
    )  # fmt: skip
    mixed = _norm(graph, _rows(graph, mixed), params.at("norm"), width)
    weight, bias = params.linear("pwconv1", inner, width), params.bias("pwconv1", inner)
    mixed = _gelu(graph, linear(graph, mixed, weight, kind, bias=bias, name="pwconv1"))
    weight, bias = params.linear("pwconv2", width, inner), params.bias("pwconv2", width)
    mixed = linear(graph, mixed, weight, kind, bias=bias, name="pwconv2")
    if params.has("gamma"):
        gamma = graph.weight(params.array("gamma", width), "gamma")
        mixed = graph.node("Mul", [mixed, gamma], name="sized")
    return graph.node("Add", [value, mixed], name="sum")


def _pool(graph: GraphBuilder, value: str, params: Parameters, sizes: GlobalConfig) -> str:
    """Mean and deviation over rows, weighted by attention over rows: [rows, width] to [1, out]."""
    width, inner, kind = sizes.dim, sizes.attention_channels, LayerKind.CODEC_HEAD
    attention = params.at("attn")
    scores = value
    for place, (outputs, inputs) in ((0, (inner, width)), (2, (width, inner))):
        # Convolutions over one frame.
        taps = attention.array(f"{place}.weight", outputs, inputs, 1)[:, :, 0]
        weight = LinearWeight(outputs, inputs, lambda start, stop, taps=taps: taps[start:stop])  # type: ignore[misc]
        bias = attention.bias(str(place), outputs)
        scores = linear(graph, scores, weight, kind, bias=bias, name=f"attention{place}")
        if place == 0:
            scores = graph.node("Tanh", [scores], name="tanh")
    shares = graph.node("Softmax", [scores], axis=0, name="shares")
    over = graph.axes(0)
    weighted = graph.node("Mul", [shares, value], name="weighted")
    mean = graph.node("ReduceSum", [weighted, over], keepdims=1, name="mean")
    squares = graph.node("Mul", [weighted, value], name="squares")
    squares = graph.node("ReduceSum", [squares, over], keepdims=1, name="mean_square")
    variance = graph.node(
        "Sub", [squares, graph.node("Mul", [mean, mean], name="square")], name="variance"
    )
    edges = [graph.constant(edge, np.float32, "edge") for edge in (_LEAST_VARIANCE, _MOST_VARIANCE)]
    deviation = graph.node(
        "Sqrt", [graph.node("Clip", [variance, *edges], name="kept")], name="std"
    )
    both = graph.node("Concat", [mean, deviation], axis=1, name="statistics")
    weight = params.linear("proj", sizes.output_channels, 2 * width)
    bias = params.bias("proj", sizes.output_channels)
    voice = linear(graph, both, weight, kind, bias=bias, name="proj")
    return _norm(graph, voice, params.at("norm"), sizes.output_channels, _POOL_NORM_EPS)


def _gelu(graph: GraphBuilder, value: str) -> str:
    """Emit ``x * (1 + erf(x / sqrt 2)) / 2``."""
    root, one, half = (
        graph.constant(number, np.float32, "number") for number in (np.sqrt(2), 1, 0.5)
    )
    erf = graph.node("Erf", [graph.node("Div", [value, root], name="scaled")], name="erf")
    raised = graph.node("Add", [erf, one], name="raised")
    return graph.node(
        "Mul", [graph.node("Mul", [value, raised], name="product"), half], name="gelu"
    )


def _norm(
    graph: GraphBuilder, value: str, params: Parameters, width: int, eps: float = _NORM_EPS
) -> str:
    return layer_norm(graph, value, params.array("weight", width), params.array("bias", width), eps)


def _columns(graph: GraphBuilder, value: str) -> str:
    """[rows, width] as [1, width, rows]."""
    value = graph.node("Transpose", [value], perm=[1, 0], name="columns")
    return graph.node("Unsqueeze", [value, graph.axes(0)], name="one")


def _rows(graph: GraphBuilder, value: str) -> str:
    """[1, width, rows] as [rows, width]."""
    value = graph.node("Squeeze", [value, graph.axes(0)], name="alone")
    return graph.node("Transpose", [value], perm=[1, 0], name="rows")
