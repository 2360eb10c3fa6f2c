"""The flow's three graphs: time tokens once per schedule, conditioning once per patch, estimator.

Source: `VoxCPMLocDiTV2` (`local_dit_v2.py`) of voxcpm 2.0.3.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from device_profiles.weight_formats import LayerKind
from export.graph.builder import GraphBuilder
from export.graph.layer_group import LayerGroup
from export.graph.linear import linear
from export.graph.local_attention import local_stack
from export.graph.parameters import Parameters
from export.voxcpm2.config import VoxCpm2Config
from export.voxcpm2.lm import rope_spec

_MU_TOKENS = 2


def build_flow_time(
    graph: GraphBuilder, params: Parameters, config: VoxCpm2Config
) -> onnx.ModelProto:
    """Build ``flow_time.onnx``.

    Inputs: ``t`` f32 [N] and ``dt`` f32 [N] (dt is 0 unless ``dit_mean_mode``).
    Output: ``time_tokens`` f32 [N, flow hidden].
    """
    hidden = config.flow.hidden
    estimator = params.at("feat_decoder", "estimator")
    embedded = []
    for name, path in (("t", "time_mlp"), ("dt", "delta_time_mlp")):
        moment = graph.input(name, ["N"])
        with graph.scope(path):
            embedded.append(_time_mlp(graph, moment, estimator.at(path), hidden))
    total = graph.node("Add", embedded, name="sum")
    graph.output(total, "time_tokens", ["N", hidden])
    return graph.build()


def build_flow_condition(
    graph: GraphBuilder, params: Parameters, config: VoxCpm2Config
) -> onnx.ModelProto:
    """Build ``flow_condition.onnx``.

    Input: ``cond`` f32 [1, P, D], the previous patch. Output: ``cond_tokens`` f32 [1, P, hidden].
    """
    hidden = config.flow.hidden
    estimator = params.at("feat_decoder", "estimator")
    cond = graph.input("cond", [1, config.patch_size, config.feat_dim])
    tokens = linear(
        graph, cond, estimator.linear("cond_proj", hidden, config.feat_dim), LayerKind.HEAD_FLOW,
        bias=estimator.bias("cond_proj", hidden), name="cond_proj",
    )  # fmt: skip
    graph.output(tokens, "cond_tokens", [1, config.patch_size, hidden])
    return graph.build()


def build_flow(graph: GraphBuilder, params: Parameters, config: VoxCpm2Config) -> onnx.ModelProto:
    """Build ``flow.onnx``, one evaluation of the estimator.

    Inputs: ``x`` f32 [1, P, D], ``mu`` f32 [B, 2, hidden] (B = 2 with a row of zeros for guidance,
    B = 1 without), ``time_token`` f32 [1, 1, hidden], ``cond_tokens`` f32 [1, P, hidden].
    Output: ``velocity`` f32 [B, P, D].
    """
    spec, size, width = config.flow, config.patch_size, config.feat_dim
    estimator = params.at("feat_decoder", "estimator")
    noisy = graph.input("x", [1, size, width])
    mu = graph.input("mu", ["B", _MU_TOKENS, spec.hidden])
    time_token = graph.input("time_token", [1, 1, spec.hidden])
    cond_tokens = graph.input("cond_tokens", [1, size, spec.hidden])
    frames = linear(
        graph, noisy, estimator.linear("in_proj", spec.hidden, width), LayerKind.HEAD_FLOW,
        bias=estimator.bias("in_proj", spec.hidden), name="in",
    )  # fmt: skip
    shared = graph.node("Concat", [time_token, cond_tokens, frames], axis=1, name="shared")
    batch = graph.node("Shape", [mu], name="batch", start=0, end=1)
    repeats = graph.node("Concat", [batch, graph.axes(1, 1)], axis=0, name="repeats")
    shared = graph.node("Expand", [shared, repeats], name="per_guidance")
    value = graph.node("Concat", [mu, shared], axis=1, name="sequence")
    rows = _MU_TOKENS + 1 + 2 * size
    rope = rope_spec(config, spec.head_size).tables(rows) if spec.rope else None
    with graph.scope("decoder"):
        read = local_stack(
            graph, value, estimator.at("decoder"), spec, LayerGroup.named("flow"), rope,
            rows=rows, wanted=(rows - size, rows),
        )  # fmt: skip
    velocity = linear(
        graph, read, estimator.linear("out_proj", width, spec.hidden), LayerKind.HEAD_FLOW,
        bias=estimator.bias("out_proj", width), name="out",
    )  # fmt: skip
    graph.output(velocity, "velocity", ["B", size, width])
    return graph.build()


def _time_mlp(graph: GraphBuilder, moment: str, params: Parameters, hidden: int) -> str:
    """Sinusoids of 1000 * t (DDPM's positions), then two linear layers with SiLU between."""
    half = hidden // 2
    step = np.float32(math.log(10000) / (half - 1))
    exponent = np.arange(half, dtype=np.float32) * -step
    frequency = np.exp(exponent.astype(np.float64)).astype(np.float32)
    scale = graph.constant(1000.0, np.float32, "scale")
    column = graph.node("Unsqueeze", [moment, graph.axes(1)], name="column")
    scaled = graph.node("Mul", [column, scale], name="scaled")
    angle = graph.node("Mul", [scaled, graph.weight(frequency[None], "frequency")], name="angle")
    waves = [graph.node(op, [angle], name=op.lower()) for op in ("Sin", "Cos")]
    value = graph.node("Concat", waves, axis=-1, name="sinusoids")
    value = linear(
        graph, value, params.linear("linear_1", hidden, hidden), LayerKind.HEAD_FLOW,
        bias=params.bias("linear_1", hidden), name="linear_1",
    )  # fmt: skip
    value = graph.node("Mul", [value, graph.node("Sigmoid", [value], name="sigmoid")], name="silu")
    return linear(
        graph, value, params.linear("linear_2", hidden, hidden), LayerKind.HEAD_FLOW,
        bias=params.bias("linear_2", hidden), name="linear_2",
    )  # fmt: skip
