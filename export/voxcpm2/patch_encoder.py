"""`patch_encoder.onnx`: latent patches to LM rows (local encoder and its projection)."""

from __future__ import annotations

import onnx

from device_profiles.weight_formats import LayerKind
from export.graph.builder import GraphBuilder
from export.graph.layer_group import LayerGroup
from export.graph.linear import linear
from export.graph.local_attention import local_stack
from export.graph.parameters import Parameters
from export.voxcpm2.config import VoxCpm2Config
from export.voxcpm2.lm import rope_spec


def build_patch_encoder(
    graph: GraphBuilder, params: Parameters, config: VoxCpm2Config
) -> onnx.ModelProto:
    """Build the graph.

    Input: ``patches`` f32 [N, P, D]. Output: ``rows`` f32 [N, 1, LM hidden].
    Each patch is read on its own, by a learned token before its P frames.
    """
    spec, length = config.patch_encoder, config.patch_size + 1
    encoder = params.at("feat_encoder")
    patches = graph.input("patches", ["N", config.patch_size, config.feat_dim])
    frames = linear(
        graph, patches, encoder.linear("in_proj", spec.hidden, config.feat_dim),
        LayerKind.HEAD_PATCH_ENCODER, bias=encoder.bias("in_proj", spec.hidden), name="in",
    )  # fmt: skip
    token = encoder.array("special_token", 1, 1, 1, spec.hidden).reshape(1, 1, spec.hidden)
    # One token per patch: the batch size is read off the frames.
    count = graph.node("Shape", [patches], name="count", start=0, end=1)
    repeats = graph.node("Concat", [count, graph.axes(1, 1)], axis=0, name="repeats")
    tokens = graph.node("Expand", [graph.weight(token, "special_token"), repeats], name="tokens")
    value = graph.node("Concat", [tokens, frames], axis=1, name="sequence")
    rope = rope_spec(config, spec.head_size).tables(length) if spec.rope else None
    with graph.scope("encoder"):
        read = local_stack(
            graph, value, encoder.at("encoder"), spec, LayerGroup.named("patch_encoder"), rope,
            rows=length, wanted=(0, 1),
        )  # fmt: skip
    hidden = config.base_lm.hidden
    rows = linear(
        graph, read, params.linear("enc_to_lm_proj", hidden, spec.hidden),
        LayerKind.HEAD_PATCH_ENCODER, bias=params.bias("enc_to_lm_proj", hidden), name="to_lm",
    )  # fmt: skip
    graph.output(rows, "rows", ["N", 1, hidden])
    return graph.build()
