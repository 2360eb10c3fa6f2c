"""Bundles that are torn, altered, foreign or hostile are refused by name."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_runtime.bundle import MANIFEST, Bundle, Manifest, manifest_text
from edge_runtime.errors import BackendError, BundleError
from edge_runtime.voice import Voice

FILES = [
    "graphs/lm.onnx", "graphs/lm.weights", "graphs/flow.weights", "graphs/flow_time.onnx",
    "graphs/vae_encoder.weights", "graphs/vae_decoder.onnx", "embedding.bin", "tokenizer.json",
]  # fmt: skip


@pytest.fixture
def bundle(f32_bundle: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(f32_bundle, tmp_path / "bundle")


def edit(bundle: Path, change: Callable[[dict], object], *, rehash: bool = True) -> None:
    data = json.loads((bundle / MANIFEST).read_text("utf-8"))
    if rehash:
        data["sha256"] = None
    change(data)
    (bundle / MANIFEST).write_text(json.dumps(data), "utf-8")


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 1 << bit
    path.write_bytes(data)


def test_the_list_of_files_here_is_not_out_of_date(f32_bundle: Path) -> None:
    assert set(FILES) <= set(Bundle.open(f32_bundle).manifest.files)


def test_every_file_of_the_folder_is_in_the_manifest(f32_bundle: Path) -> None:
    found = {str(p.relative_to(f32_bundle)) for p in f32_bundle.rglob("*") if p.is_file()}
    assert found == {*Bundle.open(f32_bundle).manifest.files, MANIFEST}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_missing_file_is_named(bundle: Path, name: str, verify: bool) -> None:
    (bundle / name).unlink()
    with pytest.raises(BundleError, match=rf"{name} is missing"):
        Voice.load(bundle, threads=1, verify=verify)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_file_is_named(bundle: Path, name: str, verify: bool) -> None:
    data = (bundle / name).read_bytes()
    for size in (0, len(data) // 2, len(data) - 1):
        (bundle / name).write_bytes(data[:size])
        with pytest.raises(BundleError, match=rf"{name} has {size} bytes.*says {len(data)}"):
            Voice.load(bundle, threads=1, verify=verify)


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_bytes_too_many_is_named(bundle: Path, name: str) -> None:
    with (bundle / name).open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(BundleError, match=name):
        Voice.load(bundle, threads=1, verify=False)


@settings(
    max_examples=40, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(name=st.sampled_from(FILES), position=st.integers(0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(bundle: Path, name: str, position: int, bit: int) -> None:
    flip(bundle / name, position, bit)
    try:
        with pytest.raises(BundleError, match=rf"{name} does not match its SHA-256"):
            Bundle.open(bundle)
    finally:
        flip(bundle / name, position, bit)


@settings(
    max_examples=300, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(position=st.integers(0), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_manifest_is_found_where_it_matters(
    bundle: Path, f32_bundle: Path, position: int, bit: int
) -> None:
    flip(bundle / MANIFEST, position, bit)
    with contextlib.suppress(BundleError):
        # Between two keys, one kind of white space is as good as another.
        assert Bundle.open(bundle).manifest == Bundle.open(f32_bundle, verify=False).manifest
    flip(bundle / MANIFEST, position, bit)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["model"].update(hidden=65),
        lambda data: data["model"]["vae_decoder"].update(sample_rate=48_001),
        lambda data: data.update(name="other"),
    ],
)
def test_a_changed_manifest_does_not_match_its_hash(bundle: Path, change) -> None:
    edit(bundle, change, rehash=False)
    with pytest.raises(BundleError, match=rf"{MANIFEST} does not match its own SHA-256"):
        Bundle.open(bundle)
    with pytest.raises(BundleError, match=rf"{MANIFEST} does not match its own SHA-256"):
        Voice.load(bundle, threads=1)


@pytest.mark.parametrize(
    "name",
    [
        "../outside", "graphs/../../outside", "/etc/hostname", "..", ".", "", "a\\b", "a\0b",
        "\ud800", "a\nb",
    ],
)  # fmt: skip
def test_file_names_that_lead_out_of_the_bundle_are_refused(bundle: Path, name: str) -> None:
    (bundle.parent / "outside").write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    edit(bundle, lambda data: data["files"].update({name: {"size": 0, "sha256": empty}}))
    with pytest.raises(BundleError, match=rf"{MANIFEST}: files: .*plain path"):
        Bundle.open(bundle)


@pytest.mark.parametrize(
    "name",
    ["os", "backends", "audio", "text", "voice", "bundle", "tokenizer", "errors", "atomic", "v2"],
)
def test_a_family_that_is_none_is_refused(bundle: Path, name: str) -> None:
    # "edge_runtime.audio" has something called "load": a module.
    import edge_runtime.audio.load  # noqa: F401

    edit(bundle, lambda data: data.update(family=name))
    with pytest.raises(BundleError, match=rf"{MANIFEST}.*family '{name}'"):
        Voice.load(bundle, threads=1)


@pytest.mark.parametrize(
    "name", ["voxcpm2.model", ".voxcpm2", "../voxcpm2", "VoxCPM2", "", "os.path", "voxcpm2\n", "_x"]
)
def test_a_family_that_is_no_plain_name_is_refused_unimported(bundle: Path, name: str) -> None:
    edit(bundle, lambda data: data.update(family=name))
    before = set(sys.modules)
    with pytest.raises(BundleError, match="family: String should match pattern"):
        Voice.load(bundle, threads=1)
    assert set(sys.modules) == before


@pytest.mark.parametrize("number", [0, 2, "1", None])
def test_another_format_is_refused_with_both_numbers(bundle: Path, number: object) -> None:
    edit(bundle, lambda data: data.update(format=number))
    with pytest.raises(BundleError, match=rf"{MANIFEST}: format {number!r} is not 1"):
        Bundle.open(bundle)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"null", b"[]", b"3", b'"x"', b"{}", b"\xff\xfe{}", b'{"format": 1}',
        b"[" * 100_000, b'{"format": 1, "files": {}}', b'\xef\xbb\xbf{"format": 1}',
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(bundle: Path, data: bytes) -> None:
    (bundle / MANIFEST).write_bytes(data)
    with pytest.raises(BundleError, match=MANIFEST):
        Bundle.open(bundle)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda data: data.pop("files"), "files"),
        (lambda data: data.update(extra=1), "extra"),
        (lambda data: data["files"]["embedding.bin"].update(size=-1), "embedding.bin"),
        (lambda data: data["files"]["embedding.bin"].update(sha256="0" * 63), "embedding.bin"),
        (lambda data: data["files"].pop("embedding.bin"), "embedding.bin"),
        (lambda data: data["files"].pop("graphs/flow.onnx"), "graphs/flow.onnx"),
        (lambda data: data["model"].pop("hidden"), "hidden"),
        (lambda data: data["model"].update(hidden=0), "hidden"),
        (lambda data: data["model"].update(hidden="wide"), "hidden"),
        (lambda data: data["model"]["graphs"].pop("flow"), "flow"),
        (lambda data: data["model"]["graphs"].update(other="x"), "graphs"),
        (lambda data: data["model"]["embedding"].update(vocab=641), "embedding.bin"),
        (lambda data: data["model"]["embedding"].update(dtype="f64"), "dtype"),
    ],
)
def test_a_wrong_manifest_key_is_named(bundle: Path, change, named: str, verify: bool) -> None:
    edit(bundle, change)
    with pytest.raises(BundleError, match=named):
        Voice.load(bundle, threads=1, verify=verify)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for path in (tmp_path / "file", tmp_path / "none", tmp_path / "a\0b"):
        with pytest.raises(BundleError, match="is not a folder"):
            Bundle.open(path)
    with pytest.raises(BundleError, match="is not a bundle"):
        Bundle.open(tmp_path)


def test_a_folder_in_place_of_a_file_is_refused(bundle: Path) -> None:
    (bundle / "embedding.bin").unlink()
    (bundle / "embedding.bin").mkdir()
    with pytest.raises(BundleError, match=r"embedding\.bin is not a file"):
        Bundle.open(bundle)
    shutil.rmtree(bundle)
    (bundle / MANIFEST).mkdir(parents=True)
    with pytest.raises(BundleError, match=MANIFEST):
        Bundle.open(bundle)


@pytest.mark.parametrize("name", ["lm", "flow", "flow_time", "vae_decoder"])
def test_a_torn_graph_that_nobody_verified_is_a_typed_error(bundle: Path, name: str) -> None:
    path = bundle / f"graphs/{name}.onnx"
    whole = path.read_bytes()
    random = np.random.default_rng(3)

    def speak(start: int) -> None:
        torn = bytearray(whole)
        torn[start : start + 100] = random.bytes(100)
        path.write_bytes(torn)
        Voice.load(bundle, threads=1, verify=False).say("hi", seed=1, max_len=2)

    with pytest.raises((BackendError, BundleError), match=name):
        speak(0)
    for start in (len(whole) // 3, len(whole) // 2, len(whole) - 200):
        # Inside a constant it goes unnoticed: that is what verifying is for.
        with contextlib.suppress(BackendError, BundleError):
            speak(start)


@pytest.mark.parametrize(
    ("graph", "old", "new"),
    [
        ("lm", b"stop_logits", b"step_logits"),
        ("lm", b"seqlens_k", b"seqlens_x"),
        ("flow_time", b"time_tokens", b"time_takens"),
        ("vae_decoder", b"next_state_0", b"next_state_x"),
        ("patch_encoder", b"patches", b"patchez"),
    ],
)
def test_a_graph_of_other_ports_is_a_typed_error(
    bundle: Path, graph: str, old: bytes, new: bytes
) -> None:
    path = bundle / f"graphs/{graph}.onnx"
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(BackendError, match=graph):
        Voice.load(bundle, threads=1, verify=False).say("hi", seed=1, max_len=3)


def test_a_torn_tokenizer_that_nobody_verified_is_a_typed_error(bundle: Path) -> None:
    path = bundle / "tokenizer.json"
    path.write_bytes(b"{" + b" " * (path.stat().st_size - 1))
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        Voice.load(bundle, threads=1, verify=False)


def test_a_bundle_that_cannot_be_written_can_be_spoken(bundle: Path) -> None:
    for path in (*bundle.rglob("*"), bundle):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in bundle.rglob("*")}
    try:
        audio = (np.full(8_000, 0.1, np.float32), 16_000)
        said = Voice.load(bundle, threads=1).say("hi", reference=audio, seed=1, max_len=2)
    finally:
        for path in (bundle, *bundle.rglob("*")):
            path.chmod(0o755)
    assert said.metrics.patches == 2
    assert {path: path.stat().st_mtime_ns for path in bundle.rglob("*")} == before


def test_links_to_a_bundle_and_to_its_files_are_followed(f32_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(f32_bundle)
    farm = tmp_path / "farm"
    for path in (path for path in f32_bundle.rglob("*") if path.is_file()):
        target = farm / path.relative_to(f32_bundle)
        target.parent.mkdir(parents=True, exist_ok=True)
        # As the hub's cache lays files out; ONNX Runtime wants weights beside the real graph.
        if path.suffix in (".bin", ".json"):
            target.symlink_to(path)
        else:
            os.link(path, target)
    for folder in (tmp_path / "link", farm):
        assert Voice.load(folder, threads=1).say("hi", seed=1, max_len=1).metrics.patches == 1


def test_the_manifest_survives_being_written_and_read(f32_bundle: Path) -> None:
    bundle = Bundle.open(f32_bundle)
    text = (f32_bundle / MANIFEST).read_text("utf-8")
    assert manifest_text(bundle.manifest) == text
    assert Manifest.model_validate(json.loads(text)) == bundle.manifest
