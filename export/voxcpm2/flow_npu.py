"""The flow estimator as Rockchip's compiler keeps it whole on the NPU.

Channel-major, every linear layer a convolution, grouped attention without repeated keys, all shapes
fixed, time embedding and conditioning left to the host. What the spellings avoid is in docs/npu.md.
Source of the model: `VoxCPMLocDiTV2` (`local_dit_v2.py`) of voxcpm 2.0.3.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx

from export.graph.builder import GraphBuilder
from export.graph.parameters import Parameters
from export.graph.rope import RopeSpec
from export.graph.transformer import attention_scale
from export.graph.transformer_spec import TransformerSpec
from export.voxcpm2.config import VoxCpm2Config
from export.voxcpm2.lm import rope_spec
from export.voxcpm2.npu_scales import NpuScales
from export.voxcpm2.npu_taps import NoTaps, Taps

FloatArray = npt.NDArray[np.float32]

# Both halves of guidance in one evaluation: weights are read once.
BATCH = 2
_MU_TOKENS, _TIME_TOKENS = 2, 1


def build_flow_npu(
    graph: GraphBuilder,
    params: Parameters,
    config: VoxCpm2Config,
    scales: NpuScales,
    taps: Taps | None = None,
) -> onnx.ModelProto:
    """Build the graph; at any scales it is equal to ``flow.onnx`` but for rounding.

    Inputs: ``x`` f32 [2, D, P], and ``prefix`` f32 [2, hidden, 3 + P]: mu, time and condition
    tokens, times ``scales.residual``. Output: ``velocity`` f32 [2, D, P].

    Args:
        graph: Graph under construction.
        params: The checkpoint's parameters.
        config: Its config.
        scales: Powers of two that keep values within f16.
        taps: Takes the values whose size decides about the scales.
    """
    builder = _FlowNpu(graph, config, scales, taps or NoTaps())
    return builder.build(params.at("feat_decoder", "estimator"))


class _FlowNpu:
    def __init__(
        self, graph: GraphBuilder, config: VoxCpm2Config, scales: NpuScales, taps: Taps
    ) -> None:
        self._graph, self._scales, self._taps = graph, scales, taps
        self._spec: TransformerSpec = config.flow
        self._size, self._width = config.patch_size, config.feat_dim
        self._rows = _MU_TOKENS + _TIME_TOKENS + 2 * self._size
        self._rope: RopeSpec | None = None
        if self._spec.rope:
            self._rope = rope_spec(config, self._spec.head_size)

    def build(self, params: Parameters) -> onnx.ModelProto:
        graph, spec, size, width = self._graph, self._spec, self._size, self._width
        scale = np.float32(self._scales.residual)
        noisy = graph.input("x", [BATCH, width, size])
        prefix = graph.input("prefix", [BATCH, spec.hidden, self._rows - size])
        frames = self._conv(
            graph.reshape(noisy, (BATCH, width, 1, size), name="x_in"),
            _rows(params, "in_proj", spec.hidden, width) * scale,
            bias=params.bias("in_proj", spec.hidden) * scale, name="in",
        )  # fmt: skip
        before = graph.reshape(prefix, (BATCH, spec.hidden, 1, self._rows - size), name="prefix_in")
        value = graph.node("Concat", [before, frames], axis=3, name="sequence")
        self._taps.see("residual", value)
        rope = self._tables()
        for index in range(spec.num_layers):
            layer = params.at("decoder", "layers", index)
            with graph.scope(str(index)):
                with graph.scope("attention"):
                    added = self._attention(value, layer, rope)
                value = self._residual(value, added)
                with graph.scope("mlp"):
                    added = self._mlp(value, layer)
                value = self._residual(value, added)
        value = graph.slice(value, self._rows - size, self._rows, 3, name="noisy")
        weight = params.array("decoder.norm.weight", spec.hidden)
        velocity = self._conv(
            self._norm(value), _rows(params, "out_proj", width, spec.hidden) * weight,
            bias=params.bias("out_proj", width), name="out",
        )  # fmt: skip
        self._taps.see("velocity", velocity)
        velocity = graph.reshape(velocity, (BATCH, width, size), name="velocity_out")
        graph.output(velocity, "velocity", [BATCH, width, size])
        self._taps.declare(graph)
        return graph.build()

    def _attention(self, value: str, layer: Parameters, rope: tuple[str, str, str] | None) -> str:
        graph, spec, rows = self._graph, self._spec, self._rows
        kv, dim = spec.num_kv_heads, spec.head_size
        group = spec.num_heads // kv
        heads = BATCH * kv
        params = layer.at("self_attn")
        norm = layer.array("input_layernorm.weight", spec.hidden)
        normed = self._norm(value)
        # Half of the factor on the scores each, so that neither is larger than it has to be.
        factor = np.float32(np.sqrt(attention_scale(dim)))
        query = _rows(params, "q_proj", spec.num_heads * dim, spec.hidden)
        key = _rows(params, "k_proj", kv * dim, spec.hidden)
        # Channels in the order (KV head, dimension, its query heads and then the key).
        joint = np.concatenate(
            [
                query.reshape(kv, group, dim, spec.hidden).transpose(0, 2, 1, 3),
                key.reshape(kv, 1, dim, spec.hidden).transpose(0, 2, 1, 3),
            ],
            axis=2,
        ).reshape(-1, spec.hidden)
        both = self._conv(normed, joint * (norm * factor), name="qk")
        both = graph.reshape(both, (heads, dim, group + 1, rows), name="by_head")
        if rope is not None:
            cosine, sine, rotation = rope
            straight = graph.node("Mul", [both, cosine], name="cos")
            # The sine is the same in both halves, so that it may come before the rotation.
            turned = graph.node("Mul", [both, sine], name="sin")
            turned = graph.node("Conv", [turned, rotation], kernel_shape=[1, 1], name="rotate")
            both = graph.node("Add", [straight, turned], name="rope")
        self._taps.see("qk", both)
        queries = graph.slice(both, 0, group, 2, name="q")
        queries = graph.reshape(queries, (heads, dim, group * rows), name="q_rows")
        queries = graph.node("Transpose", [queries], perm=[0, 2, 1], name="q_by_row")
        keys = graph.slice(both, group, group + 1, 2, name="k")
        keys = graph.reshape(keys, (heads, dim, rows), name="k_rows")
        values = self._conv(
            normed, _rows(params, "v_proj", kv * dim, spec.hidden) * norm, name="v"
        )
        self._taps.see("values", values)
        values = graph.reshape(values, (heads, dim, rows), name="v_rows")
        values = graph.node("Transpose", [values], perm=[0, 2, 1], name="v_by_row")
        scores = graph.node("MatMul", [queries, keys], name="scores")
        self._taps.see("scores", scores)
        shares = graph.node("Softmax", [scores], axis=-1, name="shares")
        mixed = graph.node("MatMul", [shares, values], name="mixed")
        mixed = graph.node("Transpose", [mixed], perm=[0, 2, 1], name="by_channel")
        mixed = graph.reshape(mixed, (BATCH, kv * dim, group, rows), name="mixed_heads")
        # The heads of a group lie along the kernel: gathering them into channels would be a
        # reshape that the NPU leaves to the CPU.
        output = _rows(params, "o_proj", spec.hidden, spec.num_heads * dim)
        output = output.reshape(spec.hidden, kv, group, dim).transpose(0, 1, 3, 2)
        output = output.reshape(spec.hidden, kv * dim, group, 1)
        return self._summed(mixed, output * self._added_scale(1.0), name="output")

    def _mlp(self, value: str, layer: Parameters) -> str:
        graph, spec, gated = self._graph, self._spec, self._scales.gated
        params = layer.at("mlp")
        norm = layer.array("post_attention_layernorm.weight", spec.hidden)
        normed = self._norm(value)
        gate, up = (
            self._conv(normed, _rows(params, f"{to}_proj", spec.ffn, spec.hidden) * factor, name=to)
            for to, factor in (("gate", norm), ("up", norm * np.float32(gated)))
        )
        self._taps.see("gate", gate)
        self._taps.see("gated", up)
        sigmoid = graph.node("Sigmoid", [gate], name="sigmoid")
        active = graph.node("Mul", [gate, sigmoid], name="silu")
        product = graph.node("Mul", [active, up], name="product")
        self._taps.see("gated", product)
        down = _rows(params, "down_proj", spec.hidden, spec.ffn)
        return self._summed(product, down * self._added_scale(gated), name="down")

    def _norm(self, value: str) -> str:
        """``value / rms(value)``; the norm's weight is part of what reads it."""
        graph, scale = self._graph, float(self._scales.residual)
        square = graph.node("Pow", [value, graph.constant(2, np.float32, "two")], name="square")
        mean = graph.node("ReduceMean", [square, graph.axes(1)], keepdims=1, name="mean_square")
        eps = graph.constant(self._spec.eps * scale * scale, np.float32, "eps")
        root = graph.node("Sqrt", [graph.node("Add", [mean, eps], name="with_eps")], name="rms")
        return graph.node("Div", [value, root], name="norm")

    def _residual(self, value: str, added: str) -> str:
        total = self._graph.node("Add", [value, added], name="sum")
        self._taps.see("residual", total)
        return total

    def _added_scale(self, of_input: float) -> np.float32:
        """Factor on what a sub-layer adds: muP's, and the residual stream's over its input's."""
        return np.float32(self._spec.residual_scale * self._scales.residual / of_input)

    def _summed(self, value: str, weight: FloatArray, *, name: str) -> str:
        """A convolution whose sums are long: the NPU rounds them to f16 part by part."""
        for part in self._taps.parts(self._graph, value, weight):
            self._taps.see("residual", part)
        added = self._conv(value, weight, name=name)
        self._taps.see("residual", added)
        return added

    def _conv(
        self, value: str, weight: FloatArray, *, name: str, bias: FloatArray | None = None
    ) -> str:
        graph = self._graph
        if weight.ndim == 2:
            weight = weight[:, :, None, None]
        inputs = [value, graph.weight(np.ascontiguousarray(weight, np.float32), f"{name}.weight")]
        if bias is not None:
            inputs.append(graph.weight(np.ascontiguousarray(bias, np.float32), f"{name}.bias"))
        return graph.node("Conv", inputs, kernel_shape=list(weight.shape[2:]), name=name)

    def _tables(self) -> tuple[str, str, str] | None:
        if self._rope is None:
            return None
        dim = self._spec.head_size
        half = dim // 2
        cosine, sine = (
            np.concatenate([table, table], axis=1).T[None, :, None, :]
            for table in self._rope.tables(self._rows)
        )
        rotation = np.zeros((dim, dim, 1, 1), np.float32)
        rotation[range(half), range(half, dim)] = -1
        rotation[range(half, dim), range(half)] = 1
        tables = (("cos", cosine), ("sin", sine), ("rotation", rotation))
        found = [self._graph.weight(np.ascontiguousarray(array), name) for name, array in tables]
        return found[0], found[1], found[2]


def _rows(params: Parameters, name: str, outputs: int, inputs: int) -> FloatArray:
    """A linear layer's whole weight, [outputs, inputs]."""
    return params.linear(name, outputs, inputs).rows(0, outputs)
