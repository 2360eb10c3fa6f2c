"""MiniCPM-4 decoder blocks: norm, attention, gated MLP.

Source: `minicpm4/model.py` of voxcpm 2.0.3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from export.checkpoint.tensor_source import FloatArray
from export.graph.builder import MICROSOFT, GraphBuilder
from export.graph.layer_group import LayerGroup
from export.graph.linear import LinearWeight, linear
from export.graph.parameters import Parameters
from export.graph.transformer_spec import TransformerSpec

# (block index, normalised rows, residual rows) -> (attention result, residual rows).
# Both may come back with fewer rows, when only some are wanted of the last block.
Attend = Callable[[int, str, str], tuple[str, str]]


def rms_norm(graph: GraphBuilder, value: str, weight: FloatArray, eps: float) -> str:
    """Emit ``value / rms(value) * weight`` over the last axis."""
    return graph.node(
        "SimplifiedLayerNormalization",
        [value, graph.weight(weight, "norm.weight")],
        name="norm",
        axis=-1,
        epsilon=eps,
        stash_type=1,
    )


def add_and_norm(
    graph: GraphBuilder, value: str, added: str, weight: FloatArray, eps: float
) -> tuple[str, str]:
    """Emit the residual sum and its norm in one node; returns (norm, sum)."""
    normed, total = graph.unique("add_norm"), graph.unique("sum")
    graph.nodes(
        "SkipSimplifiedLayerNormalization",
        [value, added, graph.weight(weight, "norm.weight")],
        4,
        domain=MICROSOFT,
        name="add_norm",
        # Outputs 1 and 2 (mean, inverse deviation) are for training: unnamed, not computed.
        outputs=[normed, "", "", total],
        epsilon=eps,
    )
    return normed, total


def gated_mlp(
    graph: GraphBuilder, value: str, params: Parameters, spec: TransformerSpec, group: LayerGroup
) -> str:
    """Emit ``down(silu(gate(x)) * up(x))`` with gate and up fused."""
    both = LinearWeight.stacked(
        params.linear("gate_proj", spec.ffn, spec.hidden),
        params.linear("up_proj", spec.ffn, spec.hidden),
    )
    fused = linear(graph, value, both, group.gate_up, name="gate_up")
    gate, up = graph.nodes("Split", [fused], 2, name="split", axis=-1, num_outputs=2)
    active = graph.node("Mul", [gate, graph.node("Sigmoid", [gate], name="sigmoid")], name="silu")
    product = graph.node("Mul", [active, up], name="gated")
    down = params.linear("down_proj", spec.hidden, spec.ffn, scale=spec.residual_scale)
    return linear(graph, product, down, group.down, name="down")


def stack(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    spec: TransformerSpec,
    group: LayerGroup,
    attend: Attend,
) -> str:
    """Emit all blocks and the final norm.

    Args:
        graph: Graph under construction.
        value: Rows [..., hidden].
        params: Parameters of the stack (``layers.N...`` and ``norm``).
        spec: Sizes.
        group: Layer kinds of the linear layers.
        attend: Emits one block's attention up to and including its output projection.

    Returns:
        Normalised rows [..., hidden].
    """
    residual, added = value, None
    for index in range(spec.num_layers):
        block = params.at("layers", index)
        with graph.scope(str(index)):
            weight = block.array("input_layernorm.weight", spec.hidden)
            if added is None:
                normed = rms_norm(graph, residual, weight, spec.eps)
            else:
                normed, residual = add_and_norm(graph, residual, added, weight, spec.eps)
            with graph.scope("attention"):
                attended, residual = attend(index, normed, residual)
            weight = block.array("post_attention_layernorm.weight", spec.hidden)
            normed, residual = add_and_norm(graph, residual, attended, weight, spec.eps)
            with graph.scope("mlp"):
                added = gated_mlp(graph, normed, block.at("mlp"), spec, group)
    assert added is not None, "a stack has at least one block"
    weight = params.array("norm.weight", spec.hidden)
    return add_and_norm(graph, residual, added, weight, spec.eps)[0]


def attention_scale(head_size: int) -> float:
    """Factor on the scores."""
    return float(1.0 / np.sqrt(head_size))
