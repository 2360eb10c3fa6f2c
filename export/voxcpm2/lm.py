"""`lm.onnx`: base LM, quantizer, residual LM, the flow's conditioning and the stop head.

One session serves prefill (S rows) and step (S = 1); KV is read and written in place.
"""

from __future__ import annotations

import onnx

from device_profiles.weight_formats import LayerKind
from export.graph.builder import GraphBuilder
from export.graph.cached_attention import KvPorts, cached_attention, last_row
from export.graph.heads import HeadLayout
from export.graph.layer_group import LayerGroup
from export.graph.linear import linear
from export.graph.parameters import Parameters
from export.graph.rope import RopeSpec
from export.graph.transformer import stack
from export.graph.transformer_spec import TransformerSpec
from export.voxcpm2.config import VoxCpm2Config


def build_lm(graph: GraphBuilder, params: Parameters, config: VoxCpm2Config) -> onnx.ModelProto:
    """Build the graph.

    Inputs: ``rows`` f32 [1, S, H] (embedded text, or encoded patches), ``is_audio`` f32 [1, S, 1],
    ``seqlens_k`` i32 [1] (valid rows after this run, less one), ``total_rows`` i32 [] (valid rows
    after this run), ``past_key_N`` and ``past_value_N`` f32 [1, KV heads, capacity, head size].

    Outputs: ``mu`` f32 [1, 2, flow hidden] and ``stop_logits`` f32 [1, 2] of the last row,
    ``present_key_N``, ``present_value_N``.
    """
    hidden = config.base_lm.hidden
    rows = graph.input("rows", [1, "S", hidden])
    is_audio = graph.input("is_audio", [1, "S", 1])
    head_size = HeadLayout.of(config.base_lm.head_size).padded
    ports = KvPorts(graph, config.base_lm.num_kv_heads, head_size)
    rope = _rope(graph, config)

    with graph.scope("base_lm"):
        base = _stack(
            graph, rows, params.at("base_lm"), config.base_lm, LayerGroup.named("lm.base"),
            ports, rope,
        )  # fmt: skip
    with graph.scope("fsq"):
        quantized = _quantize(graph, base, params.at("fsq_layer"), config)
    # Text rows pass the quantizer by.
    semantic = graph.node(
        "Where",
        [graph.node("Cast", [is_audio], to=onnx.TensorProto.BOOL, name="audio"), quantized, base],
        name="semantic_hidden",
    )
    audio_rows = graph.node("Mul", [rows, is_audio], name="audio_rows")
    both = graph.node("Concat", [semantic, audio_rows], axis=-1, name="semantic_and_audio")
    fused = linear(
        graph,
        both,
        params.linear("fusion_concat_proj", hidden, 2 * hidden),
        LayerKind.LM_FUSION,
        bias=params.bias("fusion_concat_proj", hidden),
        name="fusion",
    )
    residual_rope = rope if config.residual_lm.rope else None
    with graph.scope("residual_lm"):
        residual = _stack(
            graph, fused, params.at("residual_lm"), config.residual_lm,
            LayerGroup.named("lm.residual"), ports, residual_rope, last_row_only=True,
        )  # fmt: skip

    semantic = last_row(graph, semantic)
    width = config.flow.hidden
    mu = [
        linear(
            graph, value, params.linear(name, width, hidden), LayerKind.HEAD_MU,
            bias=params.bias(name, width), name=name,
        )
        for value, name in ((semantic, "lm_to_dit_proj"), (residual, "res_to_dit_proj"))
    ]  # fmt: skip
    graph.output(graph.node("Concat", mu, axis=1, name="mu_tokens"), "mu", [1, 2, width])
    with graph.scope("stop"):
        logits = _stop(graph, semantic, params, hidden)
    graph.output(logits, "stop_logits", [1, 2])
    return graph.build()


def _rope(graph: GraphBuilder, config: VoxCpm2Config) -> tuple[str, str] | None:
    if not (config.base_lm.rope or config.residual_lm.rope):
        return None
    layout = HeadLayout.of(config.base_lm.head_size)
    tables = rope_spec(config, config.base_lm.head_size).tables(config.max_rows)
    cosine, sine = (
        graph.weight(layout.table(table), name)
        for table, name in zip(tables, ("rope.cos", "rope.sin"), strict=True)
    )
    return cosine, sine


def rope_spec(config: VoxCpm2Config, head_size: int) -> RopeSpec:
    """LongRoPE as the config has it, for a stack of this head size."""
    lm = config.lm_config
    return RopeSpec(
        head_size=head_size,
        theta=lm.rope_theta,
        long_factor=lm.rope_scaling.long_factor,
        short_factor=lm.rope_scaling.short_factor,
        original_max_positions=lm.rope_scaling.original_max_position_embeddings,
        max_positions=lm.max_position_embeddings,
    )


def _stack(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    spec: TransformerSpec,
    group: LayerGroup,
    ports: KvPorts,
    rope: tuple[str, str] | None,
    *,
    last_row_only: bool = False,
) -> str:
    def attend(index: int, normed: str, residual: str) -> tuple[str, str]:
        only_last = last_row_only and index == spec.num_layers - 1
        attention = params.at("layers", index, "self_attn")
        result = cached_attention(
            graph, normed, attention, spec, group, ports, rope if spec.rope else None,
            last_row_only=only_last,
        )  # fmt: skip
        return result, last_row(graph, residual) if only_last else residual

    return stack(graph, value, params, spec, group, attend)


def _quantize(graph: GraphBuilder, value: str, params: Parameters, config: VoxCpm2Config) -> str:
    """Finite scalar quantization: round(tanh(in(x)) * scale) / scale, then out()."""
    hidden, latent = config.base_lm.hidden, config.scalar_quantization_latent_dim
    inner = linear(
        graph, value, params.linear("in_proj", latent, hidden), LayerKind.HEAD_QUANTIZER,
        bias=params.bias("in_proj", latent), name="in",
    )  # fmt: skip
    scale = graph.constant(config.scalar_quantization_scale, "float32", "scale")
    bounded = graph.node("Mul", [graph.node("Tanh", [inner], name="tanh"), scale], name="scaled")
    steps = graph.node("Div", [graph.node("Round", [bounded], name="round"), scale], name="steps")
    return linear(
        graph, steps, params.linear("out_proj", hidden, latent), LayerKind.HEAD_QUANTIZER,
        bias=params.bias("out_proj", hidden), name="out",
    )  # fmt: skip


def _stop(graph: GraphBuilder, value: str, params: Parameters, hidden: int) -> str:
    inner = linear(
        graph, value, params.linear("stop_proj", hidden, hidden), LayerKind.HEAD_STOP,
        bias=params.bias("stop_proj", hidden), name="proj",
    )  # fmt: skip
    active = graph.node("Mul", [inner, graph.node("Sigmoid", [inner], name="sigmoid")], name="silu")
    head = params.linear("stop_head", 2, hidden)
    logits = linear(graph, active, head, LayerKind.HEAD_STOP, name="head")
    return graph.reshape(logits, (1, 2), name="logits")
