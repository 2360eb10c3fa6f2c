"""The exported graphs as they lie in a bundle: versions, weights, ports, rows computed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_bench import session

from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.protocol import Array, Binding, Graph
from edge_runtime.bundle import Bundle
from edge_runtime.voice import Voice

PLANS = ["f32", "f16", "int8", "int4"]
GRAPHS = [
    "lm", "patch_encoder", "flow", "flow_time", "flow_condition", "vae_encoder", "vae_decoder",
]  # fmt: skip
LARGE = 64 * 1024


def models(bundle: Path) -> dict[str, onnx.ModelProto]:
    return {
        name: onnx.load(bundle / f"graphs/{name}.onnx", load_external_data=False) for name in GRAPHS
    }


def external(model: onnx.ModelProto) -> dict[str, tuple[str, int, int]]:
    """File, offset and length of every tensor outside of the graph."""
    found = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entry = {item.key: item.value for item in tensor.external_data}
            found[tensor.name] = entry["location"], int(entry["offset"]), int(entry["length"])
    return found


@pytest.mark.parametrize("weights", PLANS)
def test_versions_and_domains_are_those_that_boards_run(weights: str, make_bundle) -> None:
    for name, model in models(make_bundle("tiny", weights)).items():
        assert model.ir_version <= 10, name
        opsets = {item.domain: item.version for item in model.opset_import}
        assert set(opsets) <= {"", "com.microsoft"}
        assert opsets[""] <= 21
        assert {node.domain for node in model.graph.node} <= set(opsets)
        assert not model.functions


@pytest.mark.parametrize("weights", PLANS)
def test_no_weight_is_stored_twice(weights: str, make_bundle) -> None:
    bundle = make_bundle("tiny", weights)
    seen: dict[bytes, str] = {}
    for name, model in models(bundle).items():
        ranges = external(model)
        file = bundle / f"graphs/{name}.weights"
        assert file.exists() == bool(ranges)
        if not ranges:
            continue
        data, end, stored, large = file.read_bytes(), 0, 0, 0
        for tensor, (location, offset, length) in sorted(
            ranges.items(), key=lambda item: item[1][1]
        ):
            assert location == file.name
            assert offset >= end, f"{name}: {tensor} overlaps"
            end, stored, large = offset + length, stored + length, large + (length >= LARGE)
            content = data[offset : offset + length]
            assert seen.setdefault(content, f"{name}/{tensor}") == f"{name}/{tensor}"
        assert end == len(data)
        padding = len(data) - stored
        assert padding <= large * LARGE + len(ranges) * 64


@pytest.mark.parametrize("weights", PLANS)
def test_tensors_have_the_bytes_their_shape_takes_and_lie_aligned(
    weights: str, make_bundle
) -> None:
    found_large = False
    for model in models(make_bundle("tiny", weights)).values():
        ranges = external(model)
        for tensor in model.graph.initializer:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            size = int(np.prod(tensor.dims)) * dtype.itemsize
            if tensor.name not in ranges:
                assert size < 1024, f"{tensor.name} belongs into the weight file"
                continue
            _, offset, length = ranges[tensor.name]
            assert length == size
            assert offset % (LARGE if length >= LARGE else 64) == 0
            found_large |= length >= LARGE
    assert found_large


@pytest.mark.parametrize("weights", PLANS)
def test_every_initializer_is_used(weights: str, make_bundle) -> None:
    for model in models(make_bundle("tiny", weights)).values():
        used = {name for node in model.graph.node for name in node.input}
        assert {tensor.name for tensor in model.graph.initializer} <= used
        made = {name for node in model.graph.node for name in node.output if name}
        outputs = {output.name for output in model.graph.output}
        kept = {name for node in model.graph.node for name in node.input} | outputs
        idle = {name for name in made - kept if not name.endswith("/sum")}
        # The last sum of a stack has nobody to read it; it is a second output of its norm.
        assert idle <= {name for name in made if "sum" in name}


def test_the_plan_decides_the_operators(make_bundle) -> None:
    expected = {
        "f32": {"MatMul"}, "f16": {"MatMul", "Cast"},
        "int8": {"MatMulNBits"}, "int4": {"MatMulNBits"},
    }  # fmt: skip
    for weights, operators in expected.items():
        found = models(make_bundle("tiny", weights))
        lm = [node for node in found["lm"].graph.node if node.name.startswith("base_lm/0")]
        assert {node.op_type for node in lm} >= operators
        flow = [node for node in found["flow"].graph.node if node.name.startswith("decoder/")]
        dynamic = [node for node in flow if node.op_type == "DynamicQuantizeMatMul"]
        assert bool(dynamic) == weights.startswith("int")
        bits = {item.i for node in lm for item in node.attribute if item.name == "bits"}
        assert bits == {"f32": set(), "f16": set(), "int8": {8}, "int4": {4}}[weights]
        vae = {node.op_type for node in found["vae_decoder"].graph.node}
        assert "Conv" in vae
        assert not vae & {"MatMulNBits", "DynamicQuantizeMatMul", "ConvInteger"}


def tapped(bundle: Path, folder: Path, graph: str, *values: str):
    """A session that gives inner values as well."""
    shutil.copytree(bundle / "graphs", folder, dirs_exist_ok=True)
    path = folder / f"{graph}.onnx"
    model = onnx.load(path, load_external_data=False)
    for value in values:
        model.graph.output.append(
            onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None)
        )
    path.write_bytes(model.SerializeToString())
    return session(path)


@pytest.mark.parametrize("batch", [1, 2])
def test_the_flows_last_layer_computes_only_the_rows_that_are_read(
    f32_bundle: Path, tmp_path: Path, batch: int
) -> None:
    names = [
        "decoder/0/attention/qkv/product", "decoder/1/attention/q/product",
        "decoder/1/attention/kv/product", "decoder/1/attention/output/product",
        "decoder/1/mlp/gate_up/product", "velocity",
    ]  # fmt: skip
    random = np.random.default_rng(0)
    feeds = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in (
            ("x", (1, 4, 16)), ("mu", (batch, 2, 64)), ("time_token", (1, 1, 64)),
            ("cond_tokens", (1, 4, 64)),
        )
    }  # fmt: skip
    found = tapped(f32_bundle, tmp_path, "flow", *names[:-1]).run(names, feeds)
    assert [array.shape[:2] for array in found] == [
        (batch, 11), (batch, 4), (batch, 11), (batch, 4), (batch, 4), (batch, 4),
    ]  # fmt: skip


def test_the_patch_encoders_last_layer_computes_one_row(f32_bundle: Path, tmp_path: Path) -> None:
    names = ["encoder/0/attention/qkv/product", "encoder/1/mlp/gate_up/product", "rows"]
    found = tapped(f32_bundle, tmp_path, "patch_encoder", *names[:-1]).run(
        names, {"patches": np.ones((3, 4, 16), np.float32)}
    )
    assert [array.shape[:2] for array in found] == [(3, 5), (3, 1), (3, 1)]


def test_the_residual_lms_last_layer_computes_one_row(f32_bundle: Path, tmp_path: Path) -> None:
    names = [
        "base_lm/2/mlp/gate_up/product", "residual_lm/0/mlp/gate_up/product",
        "residual_lm/1/attention/qkv/product", "residual_lm/1/mlp/gate_up/product",
    ]  # fmt: skip
    cache = {
        f"past_{kind}_{layer}": np.empty((1, 2, 16, 16), np.float32)
        for kind in ("key", "value")
        for layer in range(5)
    }
    found = tapped(f32_bundle, tmp_path, "lm", *names).run(
        names,
        {
            "rows": np.ones((1, 6, 64), np.float32),
            "is_audio": np.zeros((1, 6, 1), np.float32),
            "seqlens_k": np.array([5], np.int32),
            "total_rows": np.array(6, np.int32),
            **cache,
        },
    )
    assert [array.shape[1] for array in found] == [6, 6, 6, 1]


class _Watched:
    """Notes every port that the runtime binds, feeds or reads."""

    def __init__(self, inner: Graph, used: dict[str, set[str]]) -> None:
        self._inner = inner
        self._used = used
        self.name = inner.name

    def run(self, feeds: Mapping[str, Array], **options: bool) -> Mapping[str, np.ndarray]:
        self._used[self.name] |= set(feeds)
        used = self._used[self.name]

        class Read(dict):
            def __getitem__(self, name: str) -> np.ndarray:
                used.add(name)
                return super().__getitem__(name)

        return Read(self._inner.run(feeds, **options))

    def bind(self, *, fixed: bool = False) -> Binding:
        binding, used = self._inner.bind(fixed=fixed), self._used[self.name]
        for kind in ("input", "output"):
            real = getattr(binding, kind)

            def noted(name: str, array: Array, real=real) -> None:
                used.add(name)
                real(name, array)

            setattr(binding, kind, noted)
        return binding


@pytest.mark.parametrize("recipe", ["tiny", "noise-block", "mean-mode"])
def test_every_port_of_every_graph_is_used_by_the_runtime(recipe: str, make_bundle) -> None:
    bundle = make_bundle(recipe, "f32")
    used: dict[str, set[str]] = {name: set() for name in GRAPHS}

    class Backend:
        def load(self, path: Path) -> Graph:
            return _Watched(OrtBackend(threads=1, spinning=False).load(path), used)

    audio = np.full(8_000, 0.1, np.float32), 16_000
    Voice.load(bundle, backend=Backend()).say("hi", reference=audio, seed=1, max_len=2)
    for name, model in models(bundle).items():
        ports = {port.name for port in (*model.graph.input, *model.graph.output)}
        assert used[name] == ports


def test_the_description_matches_the_graphs(make_bundle) -> None:
    bundle = Bundle.open(make_bundle("head-24", "f32"))
    model = models(bundle.folder)["lm"]
    shapes = {
        port.name: [dim.dim_value or dim.dim_param for dim in port.type.tensor_type.shape.dim]
        for port in model.graph.input
    }
    kv = bundle.manifest.model["kv"]
    assert kv["head_size"] == 32, "24 is padded to what the kernel takes"
    assert shapes["past_key_0"] == [1, kv["num_kv_heads"], "capacity", 32]
    assert sum(name.startswith("past_key") for name in shapes) == kv["layers"]
