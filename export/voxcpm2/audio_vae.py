"""`vae_encoder.onnx` and `vae_decoder.onnx`: the causal AudioVAE v2, streaming on both sides.

Source: `audio_vae_v2.py` of voxcpm 2.0.3. Stays f32 in every weight plan.
"""

from __future__ import annotations

import bisect

import numpy as np
import onnx

from export.graph.builder import GraphBuilder
from export.graph.causal_conv import StatePorts, causal_conv, causal_upsample, snake
from export.graph.parameters import Parameters
from export.voxcpm2.config import AudioVaeConfig

_DILATIONS = (1, 3, 9)
_KERNEL = 7

StateShapes = list[tuple[int, int, int]]


def build_vae_encoder(
    graph: GraphBuilder, params: Parameters, config: AudioVaeConfig
) -> tuple[onnx.ModelProto, StateShapes]:
    """Build the encoder.

    Inputs: ``audio`` f32 [1, 1, samples] (a multiple of the hop), ``state_N``.
    Outputs: ``latent`` f32 [1, D, samples / hop] (the posterior's mean), ``next_state_N``.

    Returns:
        The model and the shape of each state; all start as zeros.
    """
    states = StatePorts(graph)
    encoder = params.at("encoder")
    value = graph.input("audio", [1, 1, "samples"])
    width = config.encoder_dim
    with graph.scope("encoder/in"):
        value = causal_conv(
            graph, value, encoder.at("block", 0), states,
            inputs=1, outputs=width, kernel=_KERNEL, left=_KERNEL - 1,
        )  # fmt: skip
    for index, stride in enumerate(config.encoder_rates):
        block = encoder.at("block", index + 1, "block")
        with graph.scope(f"encoder/{index}"):
            value = _residual_units(graph, value, block, states, width, config.depthwise, 0)
            value = snake(graph, value, block.at(len(_DILATIONS)), width)
            value = causal_conv(
                graph, value, block.at(len(_DILATIONS) + 1), states,
                inputs=width, outputs=2 * width, kernel=2 * stride, left=stride, stride=stride,
            )  # fmt: skip
        width *= 2
    with graph.scope("encoder/mu"):
        latent = causal_conv(
            graph, value, encoder.at("fc_mu"), states,
            inputs=width, outputs=config.latent_channels, kernel=3, left=2,
        )  # fmt: skip
    graph.output(latent, "latent", [1, config.latent_channels, "frames"])
    return graph.build(), states.shapes


def build_vae_decoder(
    graph: GraphBuilder, params: Parameters, config: AudioVaeConfig
) -> tuple[onnx.ModelProto, StateShapes]:
    """Build the decoder.

    Inputs: ``latent`` f32 [1, D, frames], ``state_N``, and with ``use_noise_block`` a
    ``noise_N`` f32 [1, 1, samples at that stage] per upsampling stage.
    Outputs: ``audio`` f32 [1, 1, frames * hop] within ±1, ``next_state_N``.

    Returns:
        The model and the shape of each state; all start as zeros.
    """
    states = StatePorts(graph)
    decoder = params.at("decoder")
    channels, width = config.latent_channels, config.decoder_dim
    value = graph.input("latent", [1, channels, "frames"])
    with graph.scope("decoder/in"):
        first = decoder.at("model", 0)
        value = causal_conv(
            graph, value, first, states,
            inputs=channels, outputs=channels if config.depthwise else width, kernel=_KERNEL,
            left=_KERNEL - 1, groups=channels if config.depthwise else 1,
        )  # fmt: skip
        if config.depthwise:
            value = causal_conv(
                graph, value, decoder.at("model", 1), states,
                inputs=channels, outputs=width, kernel=1, left=0,
            )  # fmt: skip
    index = 2 if config.depthwise else 1
    for stage, stride in enumerate(config.decoder_rates):
        with graph.scope(f"decoder/{stage}"):
            if config.sr_bin_boundaries is not None:
                layer = decoder.at("sr_cond_model", index)
                value = _condition_on_rate(graph, value, layer, states, config, width)
            block = decoder.at("model", index, "block")
            value = snake(graph, value, block.at(0), width)
            value = causal_upsample(
                graph, value, block.at(1), states, inputs=width, outputs=width // 2, stride=stride
            )
            width //= 2
            units = 2
            if config.use_noise_block:
                value = _noise(graph, value, block.at(2, "linear"), states, width, stage)
                units = 3
            value = _residual_units(graph, value, block, states, width, config.depthwise, units)
        index += 1
    with graph.scope("decoder/out"):
        value = snake(graph, value, decoder.at("model", index), width)
        value = causal_conv(
            graph, value, decoder.at("model", index + 1), states,
            inputs=width, outputs=1, kernel=_KERNEL, left=_KERNEL - 1,
        )  # fmt: skip
        value = graph.node("Tanh", [value], name="tanh")
    graph.output(value, "audio", [1, 1, "samples"])
    return graph.build(), states.shapes


def _residual_units(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    states: StatePorts,
    width: int,
    depthwise: bool,
    first: int,
) -> str:
    """Three units of snake, dilated convolution, snake, pointwise convolution, plus the input."""
    for offset, dilation in enumerate(_DILATIONS):
        unit = params.at(first + offset, "block")
        with graph.scope(f"unit{offset}"):
            inner = snake(graph, value, unit.at(0), width)
            inner = causal_conv(
                graph, inner, unit.at(1), states,
                inputs=width, outputs=width, kernel=_KERNEL, left=(_KERNEL - 1) * dilation,
                dilation=dilation, groups=width if depthwise else 1,
            )  # fmt: skip
            inner = snake(graph, inner, unit.at(2), width)
            inner = causal_conv(
                graph, inner, unit.at(3), states, inputs=width, outputs=width, kernel=1, left=0
            )
            value = graph.node("Add", [value, inner], name="sum")
    return value


def _condition_on_rate(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    states: StatePorts,
    config: AudioVaeConfig,
    width: int,
) -> str:
    """Condition on the output rate; the rate is the model's own, so the embedding is a constant."""
    boundaries = config.sr_bin_boundaries or ()
    bucket = bisect.bisect_left(boundaries, config.out_sample_rate)
    count = len(boundaries) + 1

    def embedding(name: str, size: int) -> str:
        row = params.lazy(f"{name}.weight", count, size).rows(bucket, bucket + 1)
        return graph.weight(row.reshape(1, size, 1), name)

    inner = width
    if config.cond_type in ("scale_bias", "scale_bias_init"):
        value = graph.node("Mul", [value, embedding("scale_embed", width)], name="scaled")
        value = graph.node("Add", [value, embedding("bias_embed", width)], name="biased")
    elif config.cond_type == "add":
        value = graph.node("Add", [value, embedding("cond_embed", width)], name="conditioned")
    else:
        row = embedding("cond_embed", config.cond_dim)
        frames = graph.node("Shape", [value], name="frames", start=2, end=3)
        shape = graph.node("Concat", [graph.axes(1, 1), frames], axis=0, name="repeats")
        repeated = graph.node("Expand", [row, shape], name="repeated")
        value = graph.node("Concat", [value, repeated], axis=1, name="conditioned")
        inner += config.cond_dim
    if config.cond_out_layer:
        value = snake(graph, value, params.at("out_layer", 0), inner)
        value = causal_conv(
            graph, value, params.at("out_layer", 1), states,
            inputs=inner, outputs=width, kernel=1, left=0,
        )  # fmt: skip
    return value


def _noise(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    states: StatePorts,
    width: int,
    stage: int,
) -> str:
    """Add noise shaped by a pointwise convolution; the noise is an input, so runs can repeat."""
    noise = graph.input(f"noise_{stage}", [1, 1, f"stage_{stage}_frames"], np.float32)
    shaped = causal_conv(
        graph, value, params, states, inputs=width, outputs=width, kernel=1, left=0, bias=False
    )
    product = graph.node("Mul", [noise, shaped], name="noise")
    return graph.node("Add", [value, product], name="noisy")
