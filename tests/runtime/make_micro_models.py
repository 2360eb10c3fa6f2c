"""Makes the micro-models in `edge_runtime/backends`. Run it when the exporter's operators change.

python tests/runtime/make_micro_models.py
"""

from __future__ import annotations

import onnx
from make_int8_probe import attention_layer
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.backends.micro_model import (
    ATTENTION_FILE,
    CHANNELS,
    LAYERS_FILE,
    WIDTH,
    layer_weights,
)
from export.graph.builder import IR_VERSION, OPSET
from export.graph.f16_cache import with_f16_cache


def make_layers() -> onnx.ModelProto:
    """A convolution, two products and a softmax, for any number of frames."""
    names = ("kernel", "first", "second")
    weights = [numpy_helper.from_array(a, n) for a, n in zip(layer_weights(), names, strict=True)]
    nodes = [
        helper.make_node("Conv", ["audio", "kernel"], ["filtered"], name="conv", pads=[1, 1]),
        helper.make_node("Transpose", ["filtered"], ["rows"], name="rows", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["rows", "first"], ["inner"], name="inner"),
        helper.make_node("Tanh", ["inner"], ["active"], name="active"),
        helper.make_node("MatMul", ["active", "second"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["shares"], name="shares", axis=-1),
    ]
    audio = helper.make_tensor_value_info("audio", TensorProto.FLOAT, [1, CHANNELS, "frames"])
    shares = helper.make_tensor_value_info("shares", TensorProto.FLOAT, [1, "frames", WIDTH])
    return helper.make_model(
        helper.make_graph(nodes, "micro_layers", [audio], [shares], weights),
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="boardvoice",
    )


def make_attention() -> onnx.ModelProto:
    """One attention layer over an f16 cache, as the exporter writes it."""
    return with_f16_cache(attention_layer("micro_attention"))


if __name__ == "__main__":
    LAYERS_FILE.write_bytes(make_layers().SerializeToString())
    ATTENTION_FILE.write_bytes(make_attention().SerializeToString())
