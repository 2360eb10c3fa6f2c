"""Causal attention over a KV cache that is read and written in place (GroupQueryAttention)."""

from __future__ import annotations

from dataclasses import dataclass, field

from export.graph.builder import MICROSOFT, GraphBuilder, Shape
from export.graph.heads import HeadLayout
from export.graph.layer_group import LayerGroup
from export.graph.linear import LinearWeight, linear
from export.graph.parameters import Parameters
from export.graph.transformer import attention_scale
from export.graph.transformer_spec import TransformerSpec


@dataclass
class KvPorts:
    """Graph inputs that all cached layers of one graph share, and the count of layers so far.

    The runtime binds one buffer as `past_key_N` and as `present_key_N`; rows at and beyond the
    valid length are neither read nor written.
    """

    graph: GraphBuilder
    num_kv_heads: int
    head_size: int
    layers: int = field(default=0)

    def __post_init__(self) -> None:
        self.seqlens = self.graph.input("seqlens_k", [1], "int32")
        self.total = self.graph.input("total_rows", [], "int32")

    def layer(self) -> tuple[str, str, str, str]:
        """Declare one layer's buffers: past key, past value, present key, present value."""
        index, self.layers = self.layers, self.layers + 1
        past = [self.graph.input(f"past_{kind}_{index}", self._shape) for kind in ("key", "value")]
        present = [f"present_{kind}_{index}" for kind in ("key", "value")]
        return past[0], past[1], present[0], present[1]

    def declare_output(self, name: str) -> None:
        """Declare a present buffer as graph output."""
        self.graph.output(name, name, self._shape)

    @property
    def _shape(self) -> Shape:
        return (1, self.num_kv_heads, "capacity", self.head_size)


def cached_attention(
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
    """Emit QKV, attention over the cache and the output projection.

    Args:
        graph: Graph under construction.
        value: Normalised rows [1, S, hidden].
        params: Parameters of ``self_attn``.
        spec: Sizes.
        group: Layer kinds.
        ports: Cache inputs and outputs of the graph.
        rope: Cosine and sine tables [positions, padded / 2], or None without rotation.
        last_row_only: Project only the last row's result; the cache still takes all rows.

    Returns:
        [1, S, hidden], or [1, 1, hidden].
    """
    layout = HeadLayout.of(spec.head_size)
    query, key = spec.num_heads * spec.head_size, spec.num_kv_heads * spec.head_size
    packed = LinearWeight.stacked(
        layout.outputs(params.linear("q_proj", query, spec.hidden)),
        layout.outputs(params.linear("k_proj", key, spec.hidden)),
        layout.outputs(params.linear("v_proj", key, spec.hidden)),
    )
    qkv = linear(graph, value, packed, group.qkv, name="qkv")
    past_key, past_value, present_key, present_value = ports.layer()
    inputs = [qkv, "", "", past_key, past_value, ports.seqlens, ports.total, *(rope or ())]
    attended, _, _ = graph.nodes(
        "GroupQueryAttention",
        inputs,
        3,
        domain=MICROSOFT,
        name="heads",
        outputs=[f"{present_key}.heads", present_key, present_value],
        num_heads=spec.num_heads,
        kv_num_heads=spec.num_kv_heads,
        do_rotary=int(rope is not None),
        scale=attention_scale(spec.head_size),
    )
    for name in (present_key, present_value):
        ports.declare_output(name)
    if last_row_only:
        attended = last_row(graph, attended)
    output = params.linear("o_proj", spec.hidden, query, scale=spec.residual_scale)
    return linear(graph, attended, layout.inputs(output), group.output, name="output")


def last_row(graph: GraphBuilder, value: str) -> str:
    """Keep the last of the rows [1, S, ...]."""
    return graph.slice(value, -1, 2**31 - 1, 1, name="last_row")
