"""`boardvoice selftest` tells a device that computes something else from one that does not."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from boardvoice.default_bundle import default_bundle
from boardvoice.main import main
from edge_runtime.bundle import MANIFEST, Bundle, BundleFile, Manifest, manifest_text
from edge_runtime.golden.golden_file import GOLDEN, GoldenFile
from edge_runtime.golden.selftest import selftest
from edge_runtime.loader import LoadOptions, open_device


@pytest.fixture
def bundle(int8_bundle: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(int8_bundle, tmp_path / "bundle")


def rehash(folder: Path, *, without: str = "") -> None:
    """Make the manifest fit the files as they are."""
    manifest = Manifest.model_validate_json((folder / MANIFEST).read_text("utf-8"))
    files = {
        name: BundleFile(
            size=(folder / name).stat().st_size,
            sha256=hashlib.sha256((folder / name).read_bytes()).hexdigest(),
        )
        for name in manifest.files
        if name != without
    }
    text = manifest_text(manifest.model_copy(update={"files": files}))
    (folder / MANIFEST).write_text(text, "utf-8")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    code = main(["selftest", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def profile(tmp_path: Path, text: str) -> str:
    file = tmp_path / "board.yaml"
    file.write_text(f"name: board\ntitle: a board\nextends: generic-x86-64\n{text}", "utf-8")
    return str(file)


@pytest.mark.parametrize("weights", ["f32", "f16", "int8", "int4"])
def test_the_machine_that_exported_computes_the_same_bits(
    make_bundle, weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(capsys, str(make_bundle("tiny", weights)), "--profile", "generic-x86-64")
    assert code == 0
    assert found["passed"]
    assert all(entry["exact"] for entry in found["components"])
    assert {entry["provider"] for entry in found["components"]} == {"CPUExecutionProvider"}
    assert found["untested"] == {}


@pytest.mark.parametrize("kv", ["f16", "int8"])
def test_the_lm_is_tested_over_the_cache_that_the_profile_chooses(
    make_bundle, kv: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_bundle("tiny", "f32", kv="int8")
    code, found = run(capsys, str(folder), "--profile", profile(tmp_path, f"kv:\n  dtype: {kv}\n"))
    assert code == 0
    # Where ONNX Runtime has no int8 cache it is f16, which is said.
    assert found["kv_dtype"] == kv or (found["kv_dtype"] == "f16" and found["notes"])


def test_prepared_graphs_are_what_is_tested(
    int8_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path))
    code, found = run(capsys, str(int8_bundle), "--prepare")
    assert code == 0
    assert list(tmp_path.glob("prepared/*/lm.onnx"))
    assert found["passed"]


@pytest.mark.parametrize(
    ("graph", "components"),
    [
        ("lm", {"lm_prefill", "lm_step"}),
        ("flow", {"flow", "flow_unguided"}),
        ("patch_encoder", {"patch_encoder"}),
        ("vae_encoder", {"vae_encoder", "vae_encoder_next"}),
        ("vae_decoder", {"vae_decoder", "vae_decoder_next"}),
    ],
)
def test_changed_weights_are_found_even_when_their_hash_fits(
    bundle: Path, graph: str, components: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    change_weights(bundle, graph)
    rehash(bundle)
    code = main(["selftest", str(bundle), "--json"])
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert code == 14
    failed = {entry["component"] for entry in found["components"] if not entry["passed"]}
    assert failed
    assert failed <= components
    assert all(name in printed.err for name in failed)
    assert {entry["component"] for entry in found["components"] if entry["exact"]}


def change_weights(folder: Path, graph: str) -> None:
    """Flip the top bit of every byte in the middle of the largest tensor."""
    model = onnx.load(folder / f"graphs/{graph}.onnx", load_external_data=False)
    external = [
        {entry.key: entry.value for entry in tensor.external_data}
        for tensor in model.graph.initializer
        # Only the first rows of the rotary tables are read by so few positions.
        if tensor.external_data and "rope" not in tensor.name
    ]
    place = max(external, key=lambda entry: int(entry["length"]))
    start, length = int(place.get("offset", 0)), int(place["length"])
    file = folder / "graphs" / place["location"]
    data = np.fromfile(file, np.uint8)
    data[start + length // 4 : start + length // 2] ^= 0x40
    data.tofile(file)


def test_a_changed_constant_of_a_graph_is_found(bundle: Path, capsys) -> None:
    file = bundle / "graphs/flow.onnx"
    model = onnx.load(file, load_external_data=False)
    changed = 0
    for tensor in model.graph.initializer:
        if tensor.external_data or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        array = numpy_helper.to_array(tensor)
        if array.size > 1:
            tensor.CopyFrom(numpy_helper.from_array(array * np.float32(2), tensor.name))
            changed += 1
    assert changed
    file.write_bytes(model.SerializeToString())
    rehash(bundle)
    assert main(["selftest", str(bundle)]) == 14
    assert "FAILED" in capsys.readouterr().out


def test_a_bundle_without_golden_vectors_says_so(bundle: Path, capsys) -> None:
    rehash(bundle, without=GOLDEN)
    (bundle / GOLDEN).unlink()
    code, found = run(capsys, str(bundle))
    assert code == 5
    assert "has no golden vectors" in found["error"]["message"]
    assert main(["say", "Hi.", "--bundle", str(bundle), "--max-len", "2", "-o", "/dev/null"]) in (
        0, 11,
    )  # fmt: skip


def torn(text: str) -> str:
    return text[: len(text) // 2]


def foreign(text: str) -> str:
    return text.replace('"format":1', '"format":7')


@pytest.mark.parametrize("damage", [torn, foreign])
def test_golden_vectors_that_cannot_be_read_are_named(
    bundle: Path, damage: Callable[[str], str], capsys
) -> None:
    file = bundle / GOLDEN
    file.write_text(damage(file.read_text("utf-8")), "utf-8")
    rehash(bundle)
    code, found = run(capsys, str(bundle))
    assert code == 5
    assert str(file) in found["error"]["message"]


def test_a_flipped_bit_in_the_golden_file_is_refused_by_its_hash(bundle: Path, capsys) -> None:
    file = bundle / GOLDEN
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    code, found = run(capsys, str(bundle))
    assert code == 5
    assert GOLDEN in found["error"]["message"]


def test_a_graph_that_does_not_load_fails_alone(bundle: Path, capsys) -> None:
    (bundle / "graphs/flow.onnx").write_bytes(b"no graph")
    rehash(bundle)
    code, found = run(capsys, str(bundle))
    assert code == 14
    failed = {entry["component"]: entry for entry in found["components"] if not entry["passed"]}
    assert set(failed) == {"flow", "flow_unguided"}
    assert "cannot load" in failed["flow"]["reason"]


def test_memory_that_is_too_tight_is_a_reason_not_a_crash(bundle: Path) -> None:
    opened, resources = open_device(bundle, LoadOptions(prepare="never"))
    object.__setattr__(resources.guard.settings, "hard_bytes", 1 << 20)
    found = selftest(opened, resources)
    assert not found.passed
    assert all("memory" in result.reason for result in found.results)


def test_ports_that_a_graph_does_not_have_fail_by_name(bundle: Path, capsys) -> None:
    file = bundle / GOLDEN
    file.write_text(file.read_text("utf-8").replace('"mu"', '"nu"'), "utf-8")
    rehash(bundle)
    code, found = run(capsys, str(bundle))
    assert code == 14
    assert any("flow" in entry["reason"] for entry in found["components"])


def test_the_default_bundle_is_made_again_with_golden_vectors(tmp_path: Path, capsys) -> None:
    folder = default_bundle(tmp_path)
    assert GoldenFile.of(Bundle.open(folder)) is not None
    rehash(folder, without=GOLDEN)
    (folder / GOLDEN).unlink()
    assert GoldenFile.of(Bundle.open(default_bundle(tmp_path))) is not None


def test_damage_is_listed_file_by_file(bundle: Path) -> None:
    (bundle / "tokenizer.json").unlink()
    with (bundle / "embedding.bin").open("r+b") as stream:
        stream.truncate(100)
    data = bytearray((bundle / "graphs/flow.weights").read_bytes())
    data[5] ^= 4
    (bundle / "graphs/flow.weights").write_bytes(data)
    manifest = Manifest.model_validate_json((bundle / MANIFEST).read_text("utf-8"))
    found = Bundle(bundle, manifest).damaged()
    assert len(found) == 3
    assert any("tokenizer.json is missing" in line for line in found)
    assert any("embedding.bin has 100 bytes" in line for line in found)
    assert any("flow.weights does not match its SHA-256" in line for line in found)
