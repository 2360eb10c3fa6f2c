"""Makes `edge_runtime/backends/int8_cache.onnx`. Run it when the exporter's attention changes.

python tests/runtime/make_int8_probe.py
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from edge_runtime.backends.int8_cache import HEAD_SIZE, HEADS, K_SCALE, PROBE, V_SCALE
from export.graph.builder import IR_VERSION, MICROSOFT, OPSET
from export.graph.int8_cache import KVRanges, with_int8_cache


def attention_layer(name: str) -> onnx.ModelProto:
    """One attention layer over one f32 key and value head, without rotation."""
    cache = [1, 1, "capacity", HEAD_SIZE]

    def port(name: str, shape: list[int | str], kind: int = TensorProto.FLOAT) -> object:
        return helper.make_tensor_value_info(name, kind, shape)

    node = helper.make_node(
        "GroupQueryAttention",
        ["rows", "", "", "past_key_0", "past_value_0", "seqlens_k", "total_rows"],
        ["heads", "present_key_0", "present_value_0"],
        domain=MICROSOFT,
        name="attention",
        num_heads=HEADS,
        kv_num_heads=1,
        do_rotary=0,
        scale=float(HEAD_SIZE) ** -0.5,
    )
    inputs = [
        port("rows", [1, "S", (HEADS + 2) * HEAD_SIZE]),
        port("past_key_0", cache),
        port("past_value_0", cache),
        port("seqlens_k", [1], TensorProto.INT32),
        port("total_rows", [], TensorProto.INT32),
    ]
    outputs = [
        port("heads", [1, "S", HEADS * HEAD_SIZE]),
        port("present_key_0", cache),
        port("present_value_0", cache),
    ]
    return helper.make_model(
        helper.make_graph([node], name, inputs, outputs),
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)],
        producer_name="boardvoice",
    )


def make_probe() -> onnx.ModelProto:
    """The layer over an int8 cache."""
    model = attention_layer("int8_cache")
    ranges = KVRanges(frozenset())
    for name, scale in (("past_key_0", K_SCALE), ("past_value_0", V_SCALE)):
        ranges.observe({name: np.float32(127) * scale[None, None, None]}, 1)
    return with_int8_cache(model, ranges, margin=1.0)


if __name__ == "__main__":
    PROBE.write_bytes(make_probe().SerializeToString())
