"""Export for the NPU and speech in the simulator, with a toolkit that fails in every way it can."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from boardvoice.main import main
from device_profiles.catalog import load_profile
from edge_runtime.bundle import Bundle
from edge_runtime.errors import CheckpointError, MemoryBudgetError
from edge_runtime.npu.flow_entry import NpuFlowEntry
from edge_runtime.rknn_toolkit import convert as convert_module
from edge_runtime.rknn_toolkit.conversions import MODEL, ConversionCache, NpuPrecision
from edge_runtime.rknn_toolkit.toolkit_error import ToolkitError
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.model import read_spec
from export.checkpoint.folder import open_model
from export.graph.npu_lint import check_for_npu
from export.graph.parameters import Parameters
from export.synthetic import RECIPES, make_checkpoint
from export.voxcpm2.config import load_config
from export.voxcpm2.exporter import export_voxcpm2
from export.voxcpm2.npu_export import NpuExport, largest_values, write_source
from export.voxcpm2.npu_inputs import NpuInput, record_inputs
from export.voxcpm2.npu_scales import F16_MAX, MARGIN, NpuScales

TOOLKIT = Path(__file__).parent / "toolkit"
PATCHES = 4


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The stand-in toolkit in its own interpreter, with a state folder of its own."""
    python = tmp_path / "toolkit-python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={TOOLKIT} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    log = tmp_path / "calls"
    monkeypatch.setenv("BOARDVOICE_RKNN_PYTHON", str(python))
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("FAKE_RKNN_CALLS", str(log))
    monkeypatch.delenv("FAKE_RKNN", raising=False)
    return lambda: log.read_text().split() if log.exists() else []


def recorded(bundle: Path) -> list[NpuInput]:
    opened = Bundle.open(bundle)
    return record_inputs(opened, read_spec(opened))


@pytest.fixture(scope="session")
def inputs(f32_bundle: Path) -> list[NpuInput]:
    return recorded(f32_bundle)


def evaluate(file: Path, inputs: NpuInput, scale: float) -> np.ndarray:
    feeds = {"x": inputs.x, "prefix": inputs.prefix * np.float32(scale)}
    return ort.InferenceSession(str(file)).run(["velocity"], feeds)[0]


def snr_db(found: np.ndarray, wanted: np.ndarray) -> float:
    return 20 * float(np.log10(np.linalg.norm(wanted) / np.linalg.norm(found - wanted)))


@pytest.mark.parametrize("recipe", ["tiny", "mup", "head-24", "no-rope"])
def test_the_npus_form_equals_the_cpus_graph(
    recipe: str, make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    bundle = make_bundle(recipe, "f32")
    checkpoint = bundle.parent / recipe
    config = load_config(checkpoint)
    runs = recorded(bundle)
    assert len(runs) >= 3 * 4 * 9
    cpu = ort.InferenceSession(str(bundle / "graphs/flow.onnx"))
    with closing(open_model(checkpoint)) as model:
        for index, scales in enumerate((NpuScales(), NpuScales(2.0**-6, 2.0**-4))):
            source = write_source(tmp_path / str(index), Parameters(model), config, scales)
            for run in runs[:: len(runs) // 3]:
                rows = run.prefix.transpose(0, 2, 1)
                wanted = cpu.run(None, {
                    "x": run.x[:1].transpose(0, 2, 1).copy(), "mu": rows[:, :2].copy(),
                    "time_token": rows[:1, 2:3].copy(), "cond_tokens": rows[:1, 3:].copy(),
                })[0]  # fmt: skip
                found = evaluate(source.graph, run, scales.residual).transpose(0, 2, 1)
                assert snr_db(found, wanted) > 110


def test_only_what_the_npu_computes_well_is_in_the_graph(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with closing(open_model(tiny_checkpoint)) as model:
        config = load_config(tiny_checkpoint)
        source = write_source(tmp_path / "s", Parameters(model), config, NpuScales())
    graph = onnx.load(str(source.graph), load_external_data=False)
    check_for_npu(graph)
    kinds = {node.op_type for node in graph.graph.node}
    assert kinds <= {
        "Add", "Concat", "Conv", "Div", "Identity", "MatMul", "Mul", "Pow", "ReduceMean", "Reshape",
        "Sigmoid", "Slice", "Softmax", "Sqrt", "Transpose",
    }  # fmt: skip
    # Grouped heads are never repeated: one product per scores and one per mix, in every layer.
    assert sum(node.op_type == "MatMul" for node in graph.graph.node) == 2 * config.flow.num_layers


def spoiled(graph: onnx.ModelProto, **changes: object) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    node = onnx.helper.make_node(changes.pop("op"), ["x"], ["spoiled"], name="spoiled", **changes)  # type: ignore[arg-type]
    copy.graph.node.insert(0, node)
    return copy


def test_the_lint_names_what_converts_badly(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with closing(open_model(tiny_checkpoint)) as model:
        config = load_config(tiny_checkpoint)
        source = write_source(tmp_path / "s", Parameters(model), config, NpuScales())
    graph = onnx.load(str(source.graph), load_external_data=False)
    for op, why in (
        ("Reciprocal", "overflows to zeros"), ("Sin", "goes to the CPU"), ("ReduceL2", "no eps"),
        ("Clip", "both bounds"), ("Expand", "repeats keys"),
    ):  # fmt: skip
        with pytest.raises(CheckpointError, match=f"spoiled: {op}.*{why}"):
            check_for_npu(spoiled(graph, op=op))
    with pytest.raises(CheckpointError, match="not a standard operator"):
        check_for_npu(spoiled(graph, op="FusedConv", domain="com.microsoft"))
    graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "B"
    with pytest.raises(CheckpointError, match="x: its shape is not fixed"):
        check_for_npu(graph)


def test_scales_follow_the_largest_values_of_real_runs(
    tiny_checkpoint: Path, inputs: list[NpuInput], tmp_path: Path
) -> None:
    with closing(open_model(tiny_checkpoint)) as model:
        parameters, config = Parameters(model), load_config(tiny_checkpoint)
        largest = largest_values(tmp_path / "t", parameters, config, inputs)
    assert set(largest) == {"residual", "gated", "qk", "scores", "values", "gate", "velocity"}
    assert 0 < min(largest.values()) <= max(largest.values()) < 100
    # The prefix is part of the residual stream.
    assert largest["residual"] >= max(float(np.abs(run.prefix).max()) for run in inputs)
    scales = NpuScales.of(largest)
    assert (scales.residual, scales.gated) == (1, 1)
    for residual in (1e4, 1e5, 1e6):
        found = NpuScales.of({**largest, "residual": residual, "gated": 3e5})
        reached = residual * found.residual * MARGIN
        assert reached <= F16_MAX < 2.01 * reached
        assert np.log2(found.residual) % 1 == np.log2(found.gated) % 1 == 0
    for kind, value in (("residual", 1e9), ("scores", 7e4), ("gated", float("nan"))):
        with pytest.raises(CheckpointError, match=kind):
            NpuScales.of({**largest, kind: value})


def test_long_sums_are_looked_at_part_by_part(tmp_path: Path) -> None:
    wide = {"dit_config.ffn_dim": 3200}
    recipe = RECIPES["tiny"]
    recipe = type(recipe)("wide", "", changes=(*recipe.changes, *wide.items()))
    checkpoint = make_checkpoint(tmp_path / "wide", recipe)
    config = load_config(checkpoint)
    run = NpuInput(
        np.ones((2, config.feat_dim, config.patch_size), np.float32),
        np.ones((2, config.flow.hidden, 3 + config.patch_size), np.float32),
    )
    with closing(open_model(checkpoint)) as model:
        largest = largest_values(tmp_path / "taps", Parameters(model), config, [run])
    graph = onnx.load(str(tmp_path / "taps/source.onnx"), load_external_data=False)
    names = [node.name.rpartition("/")[2] for node in graph.graph.node]
    assert sum(name.startswith("tile_sum") for name in names) == 3 * config.flow.num_layers
    assert largest["residual"] > 0


def export(checkpoint: Path, out: Path, **options: object) -> Bundle:
    export_voxcpm2(checkpoint, out, weights="f32", npu=NpuExport(**options), replace=True)  # type: ignore[arg-type]
    return Bundle.open(out)


def test_a_bundle_gets_its_model_and_what_is_known_of_it(
    tiny_checkpoint: Path, tmp_path: Path, calls: Callable[[], list[str]]
) -> None:
    bundle = export(tiny_checkpoint, tmp_path / "bundle")
    entry = NpuFlowEntry.of(bundle)
    assert entry is not None
    assert (entry.target, entry.precision, entry.toolkit) == ("rk3588", "f16", "2.5.0")
    assert entry.cpu_operators == ("Reshape:x_in", "Reshape:prefix_in", "Reshape:velocity_out")
    assert entry.operators > 40
    assert entry.cycles == 100 * entry.operators
    assert entry.memory_bytes == int(42.0625 * 1024) + int(168.562 * 1024)
    assert entry.margin == MARGIN
    assert entry.largest["residual"] > 1
    assert entry.source_sha256.encode() in bundle.path(entry.model).read_bytes()
    assert calls().count("build") == 1
    # Again, and under another name: nothing is converted twice.
    export(tiny_checkpoint, tmp_path / "other")
    assert calls().count("build") == 1
    # A model that was damaged in the cache is made again.
    (model,) = (tmp_path / "state/npu").glob(f"*/{MODEL}")
    data = bytearray(model.read_bytes())
    data[100] ^= 1
    model.write_bytes(data)
    assert NpuFlowEntry.of(export(tiny_checkpoint, tmp_path / "bundle")) == entry
    assert calls().count("build") == 2
    # int8 takes recorded inputs along.
    entry = NpuFlowEntry.of(export(tiny_checkpoint, tmp_path / "bundle", precision="int8"))
    assert entry is not None
    assert (entry.precision, entry.model) == ("int8", "npu/flow.rk3588.int8.rknn")


def test_profiles_say_what_is_converted() -> None:
    def of(name: str, wanted: bool | None = None, precision: NpuPrecision | None = None) -> object:
        return NpuExport.of(load_profile(name), wanted=wanted, precision=precision)

    assert of("orange-pi-5-plus") == NpuExport("rk3588", "f16")
    assert of("orange-pi-5", wanted=False) is None
    assert of("x86-vnni") is None
    assert of("x86-vnni", wanted=True) == NpuExport("rk3588", "f16")
    # The same NPU with one core less.
    assert of("rk3582-generic", precision="int8") == NpuExport("rk3588", "int8")


@pytest.mark.parametrize(
    ("fault", "reason", "said"),
    [
        ("load_onnx:code", "refused", "load_onnx returned -1"),
        ("build:raise", "refused", "ValueError: bad op"),
        ("build:die", "died", "signal 9"),
        ("build:hang", "timeout", "did not finish 'convert' within 3 s"),
        ("export_rknn:code", "refused", "export_rknn returned -1"),
        ("cpu", "operators", "operators to the CPU: Softmax:0/attention/shares"),
        ("no-table", "operators", "no table of operators"),
        ("no-mark", "files", "not what was asked for"),
    ],
)
def test_a_toolkit_that_fails_leaves_no_bundle_and_its_log(
    fault: str, reason: str, said: str, tiny_checkpoint: Path, tmp_path: Path,
    calls: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FAKE_RKNN", fault)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    log = tmp_path / "bundle.rknn.log"
    with pytest.raises(ToolkitError) as caught:
        export(tiny_checkpoint, tmp_path / "bundle", limit_s=3.0, log=log)
    assert caught.value.reason == reason
    assert said in caught.value.message
    assert str(log) in caught.value.remedy or str(log) in str(caught.value)
    assert "I rknn: new" in log.read_text()
    assert not (tmp_path / "bundle").exists()
    # Neither the toolkit's leftovers nor a half-made conversion stay.
    assert not list(tmp_path.glob("boardvoice-rknn-*"))
    assert not list((tmp_path / "state/npu").glob("*/"))


def test_without_the_toolkit_nothing_is_begun(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("BOARDVOICE_RKNN_PYTHON", raising=False)
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    out = str(tmp_path / "bundle")
    command = ["export", "voxcpm2", str(tiny_checkpoint), "--out", out, "--profile", "rock-5b"]
    assert main(command) == 10
    assert "boardvoice rknn install" in capsys.readouterr().err
    assert not Path(out).exists()
    (tmp_path / "state/rknn-toolkit/bin").mkdir(parents=True)
    assert main(command) == 10
    assert "cut short" in capsys.readouterr().err
    monkeypatch.setenv("BOARDVOICE_RKNN_PYTHON", str(tmp_path))
    assert main(command) == 10
    assert "which is no program" in capsys.readouterr().err
    assert main([*command, "--no-npu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["npu"] is None


def test_memory_is_asked_for_before_the_toolkit_takes_it(
    tiny_checkpoint: Path, tmp_path: Path, calls: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(convert_module, "available_memory", lambda: 300 << 20)
    with pytest.raises(MemoryBudgetError, match="Converting for the NPU needs about 70"):
        export(tiny_checkpoint, tmp_path / "bundle")
    assert "build" not in calls()


def test_speech_in_the_simulator(
    tiny_checkpoint: Path, tmp_path: Path, calls: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = tmp_path / "bundle"
    export(tiny_checkpoint, folder)
    on_cpu = Voice.load(folder, threads=1).say("One, two.", seed=3, max_len=PATCHES)
    voice = Voice.load(folder, threads=1, flow="rknn-sim")
    speech = voice.say("One, two.", seed=3, max_len=PATCHES)
    record = speech.metrics.as_dict()["npu"]
    assert (record["place"], record["in_use"]) == ("rknn-sim", True)
    assert record["evaluations"] >= 9 * PATCHES
    assert record["versions"]["rknn-toolkit2"] == "2.5.0"
    assert speech.audio.shape == on_cpu.audio.shape
    assert snr_db(speech.audio, on_cpu.audio) > 40
    # Dropped, its process goes with it.
    del voice
    (entry,) = ConversionCache.default().entries()
    for fault, reason in (
        ("build:code", "simulator"), ("inference:none", "simulator"),
        ("inference:shape", "outputs"), ("inference:die", "simulator"),
    ):  # fmt: skip
        monkeypatch.setenv("FAKE_RKNN", fault)
        fallen = Voice.load(folder, threads=1, flow="rknn-sim")
        speech = fallen.say("One, two.", seed=3, max_len=PATCHES)
        metrics = speech.metrics.as_dict()
        assert (metrics["npu"]["in_use"], metrics["npu"]["reason"]) == (False, reason)
        assert (speech.audio == on_cpu.audio).all()
        assert any("rknn-sim" in note for note in metrics["warnings"])
    # The conversion is gone: the model alone cannot be simulated.
    monkeypatch.delenv("FAKE_RKNN")
    entry.rename(tmp_path / "elsewhere")
    metrics = Voice.load(folder, threads=1, flow="rknn-sim").say("One.", max_len=1).metrics
    assert metrics.as_dict()["npu"]["reason"] == "no-source"


def test_the_toolkits_process_ends_with_the_export(
    tiny_checkpoint: Path, tmp_path: Path, calls: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FAKE_RKNN", "build:hang")
    out = tmp_path / "bundle"
    command = [sys.executable, "-m", "boardvoice", "export", "voxcpm2", str(tiny_checkpoint)]
    process = subprocess.Popen([*command, "--out", str(out), "--weights", "f32", "--npu", "-q"])
    try:
        for _ in range(600):
            if "load_onnx" in calls():
                break
            time.sleep(0.1)
        assert "load_onnx" in calls()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for _ in range(100):
        if not any(is_running(int(child)) for child in children):
            break
        time.sleep(0.1)
    assert not any(is_running(int(child)) for child in children)
    assert not out.exists()
    # What the killed one left goes with the next.
    monkeypatch.delenv("FAKE_RKNN")
    assert list((tmp_path / "state/npu").glob("scratch-*"))
    export(tiny_checkpoint, out)
    assert not list((tmp_path / "state/npu").glob("scratch-*"))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X") and os.path.exists(f"/proc/{pid}")


def test_status_tells_what_is_there(
    tmp_path: Path, calls: Callable[[], list[str]], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert main(["rknn", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["rknn-toolkit2"] == "2.5.0"
    assert found["conversions"] == []
    monkeypatch.setenv("BOARDVOICE_RKNN_PYTHON", sys.executable)
    assert main(["rknn", "status"]) == 10
    assert "refused 'check'" in capsys.readouterr().err


def test_an_installation_that_fails_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BOARDVOICE_RKNN_PYTHON", raising=False)
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    # No index to take packages from.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    if sys.version_info < (3, 13):
        assert main(["rknn", "install", "--python", sys.executable, "-q"]) == 10
        said = capsys.readouterr().err
        assert "failed at 'rknn-toolkit2'" in said
        assert "rknn-toolkit-install.log" in said
        assert main(["rknn", "status"]) == 10
        assert "cut short" in capsys.readouterr().err
    assert main(["rknn", "install", "--python", "/bin/true"]) == 10
    assert "needs 3.9 to 3.12" in capsys.readouterr().err
