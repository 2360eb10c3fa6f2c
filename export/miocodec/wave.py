"""The graphs from content tokens and a voice to spectra.

Source: `MioCodecModel.forward_wave` of github.com/Aratako/MioCodec (commit 7747354).
"""

from __future__ import annotations

import numpy as np
import onnx

from device_profiles.weight_formats import LayerKind
from export.graph.builder import GraphBuilder
from export.graph.linear import LinearWeight, linear
from export.graph.parameters import Parameters
from export.graph.windowed_attention import windowed_stack
from export.miocodec.config import CodecConfig, MioCodecConfig
from export.miocodec.convolutions import residual_block, snake_beta, upsample
from export.miocodec.stacks import wave_kinds, windowed_spec

# Magnitudes are cut here, as the reference does.
_LOUDEST = 1e2


def build_wave_prenet(
    graph: GraphBuilder, params: Parameters, config: MioCodecConfig
) -> onnx.ModelProto:
    """Build the graph from the quantizer's codes to decoder frames.

    Inputs: ``codes`` f32 [rows, levels], one row per token within -1..1, and those of
    `windowed_stack`.
    Outputs: ``frames`` f32 [rows * upsampling, width].
    """
    stack, codec = config.wave_prenet.init_args, config.config
    quantizer = config.local_quantizer.init_args
    count = len(quantizer.levels)
    value = graph.input("codes", ["rows", count])
    name = "local_quantizer.proj_out"
    with graph.scope("quantizer"):
        value = linear(
            graph, value, params.linear(name, quantizer.output_dim, count), LayerKind.CODEC_HEAD,
            bias=params.bias(name, quantizer.output_dim), name="proj_out",
        )  # fmt: skip
    with graph.scope("wave_prenet"):
        prenet = params.at("wave_prenet")
        value = windowed_stack(graph, value, prenet, windowed_spec(stack), wave_kinds())
        value = _project(graph, value, prenet, stack.dim, stack.output_dim)
    if codec.wave_upsample_factor > 1:
        with graph.scope("upsample"):
            value = _unfold(graph, value, params.at("wave_conv_upsample"), codec)
    graph.output(value, "frames", ["frames", codec.wave_decoder_dim])
    return graph.build()


def build_wave_prior(
    graph: GraphBuilder, params: Parameters, config: MioCodecConfig
) -> onnx.ModelProto:
    """Build the residual blocks before the decoder; their norms see the whole clip.

    Inputs: ``frames`` f32 [frames, width]. Outputs: ``prior`` likewise.
    """
    value = _columns(graph, graph.input("frames", ["frames", config.config.wave_decoder_dim]))
    value = _blocks(graph, value, params.at("wave_prior_net"), config.config)
    return _rows_out(graph, value, "prior", config.config.wave_decoder_dim)


def build_wave_decoder(
    graph: GraphBuilder, params: Parameters, config: MioCodecConfig
) -> onnx.ModelProto:
    """Build the transformer that the voice modulates.

    Inputs: ``frames`` f32 [rows, width], ``voice`` f32 [1, width of a voice], and those of
    `windowed_stack`.
    Outputs: ``decoded`` f32 [rows, width].
    """
    stack, decoder = config.wave_decoder.init_args, params.at("wave_decoder")
    value = graph.input("frames", ["rows", stack.dim])
    voice = graph.input("voice", [1, stack.adanorm_condition_dim or 0])
    with graph.scope("wave_decoder"):
        value = windowed_stack(graph, value, decoder, windowed_spec(stack), wave_kinds(), voice)
        value = _project(graph, value, decoder, stack.dim, stack.output_dim)
    graph.output(value, "decoded", ["rows", stack.outputs])
    return graph.build()


def build_wave_post(
    graph: GraphBuilder, params: Parameters, config: MioCodecConfig
) -> onnx.ModelProto:
    """Build the residual blocks after the decoder and the upsampler's stages.

    Their norms see the whole clip.

    Inputs: ``frames`` f32 [frames, width].
    Outputs: ``post`` f32 [frames * upsampling, width / 2 ** stages].
    """
    codec = config.config
    width = codec.wave_decoder_dim
    value = _columns(graph, graph.input("frames", ["frames", width]))
    value = _blocks(graph, value, params.at("wave_post_net"), codec)
    upsampler = params.at("wave_upsampler")
    stages = zip(codec.wave_upsampler_factors, codec.wave_upsampler_kernel_sizes, strict=True)
    for index, (factor, kernel) in enumerate(stages):
        with graph.scope(f"upsampler/{index}"):
            value = upsample(
                graph, value, upsampler.at("upsample_layers", index),
                inputs=width, outputs=width // 2, kernel=kernel, factor=factor,
            )  # fmt: skip
            width //= 2
            activation = upsampler.at("snake_activations", index)
            value = snake_beta(graph, value, activation, width, (1, width, 1))
            # The reference's default kernel, whatever the other blocks have.
            value = residual_block(
                graph, value, upsampler.at("resnet_blocks", index), width, 3,
                min(codec.wave_resnet_num_groups, width),
            )  # fmt: skip
    return _rows_out(graph, value, "post", width)


def build_wave_head(
    graph: GraphBuilder, params: Parameters, config: MioCodecConfig
) -> onnx.ModelProto:
    """Build the head: each frame by itself, to a spectrum.

    Inputs: ``frames`` f32 [frames, width / 2 ** stages].
    Outputs: ``real`` and ``imaginary`` f32 [frames, n_fft / 2 + 1].
    """
    codec = config.config
    width, bins = codec.wave_decoder_dim, codec.n_fft // 2 + 1
    inner = width >> len(codec.wave_upsampler_factors)
    value = graph.input("frames", ["frames", inner])
    if codec.wave_upsampler_factors:
        upsampler = params.at("wave_upsampler")
        with graph.scope("upsampler"):
            value = _project(graph, value, upsampler, inner, width, "out_proj")
            value = snake_beta(graph, value, upsampler.at("out_snake"), width, (1, width))
    value = _project(graph, value, params.at("istft_head"), width, 2 * bins, "out")
    logarithm, phase = graph.nodes("Split", [value], 2, name="split", axis=-1, num_outputs=2)
    magnitude = graph.node("Exp", [logarithm], name="magnitude")
    magnitude = graph.node(
        "Min", [magnitude, graph.constant(_LOUDEST, np.float32, "loudest")], name="cut"
    )
    for op, name in (("Cos", "real"), ("Sin", "imaginary")):
        turned = graph.node(op, [phase], name=op.lower())
        part = graph.node("Mul", [magnitude, turned], name="part")
        graph.output(part, name, ["frames", bins])
    return graph.build()


def _columns(graph: GraphBuilder, value: str) -> str:
    """[frames, width] as [1, width, frames]."""
    value = graph.node("Transpose", [value], perm=[1, 0], name="columns")
    return graph.node("Unsqueeze", [value, graph.axes(0)], name="one")


def _rows_out(graph: GraphBuilder, value: str, name: str, width: int) -> onnx.ModelProto:
    value = graph.node("Squeeze", [value, graph.axes(0)], name="alone")
    value = graph.node("Transpose", [value], perm=[1, 0], name="rows")
    graph.output(value, name, ["out_frames", width])
    return graph.build()


def _blocks(graph: GraphBuilder, value: str, params: Parameters, codec: CodecConfig) -> str:
    for index in range(codec.wave_resnet_num_blocks):
        with graph.scope(f"blocks/{index}"):
            value = residual_block(
                graph, value, params.at("blocks", index), codec.wave_decoder_dim,
                codec.wave_resnet_kernel_size, codec.wave_resnet_num_groups,
            )  # fmt: skip
    return value


def _project(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    inputs: int,
    outputs: int | None,
    name: str = "output_proj",
) -> str:
    """A last linear layer; none where the reference has an identity."""
    if outputs is None:
        return value
    weight, bias = params.linear(name, outputs, inputs), params.bias(name, outputs)
    return linear(graph, value, weight, LayerKind.CODEC_HEAD, bias=bias, name=name)


def _unfold(graph: GraphBuilder, value: str, params: Parameters, codec: CodecConfig) -> str:
    """A transposed convolution whose kernel is its stride: a product and a reshape."""
    width, factor = codec.wave_decoder_dim, codec.wave_upsample_factor
    taps = params.array("weight", width, width, factor)
    rows = np.ascontiguousarray(taps.transpose(2, 1, 0)).reshape(factor * width, width)
    weight = LinearWeight(factor * width, width, lambda start, stop: rows[start:stop])
    bias = np.tile(params.array("bias", width), factor)
    value = linear(graph, value, weight, LayerKind.CODEC_HEAD, bias=bias, name="unfold")
    return graph.reshape(value, (-1, width))
