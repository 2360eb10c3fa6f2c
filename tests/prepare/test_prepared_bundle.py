"""Prepared files: made once, found again, and only where they fit and are whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from kv_types import kv_profile, needs_int8
from preparing import make

from edge_runtime.bundle import Bundle
from edge_runtime.errors import BundleError
from edge_runtime.prepare import prepared_bundle
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_bundle import PreparedBundle, find_prepared
from edge_runtime.prepare.prepared_info import INFO, GraphCost, Workspace
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.spec import VoxCpm2Spec

TEXT = "The quick brown fox jumps over the lazy dog while seven wizards brew strange potions."
TONE = (np.sin(np.arange(16_000) * 0.05).astype(np.float32) * 0.3, 16_000)


def cpuinfo(root: Path, text: str) -> Path:
    (root / "proc").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text(text)
    return root


def find(bundle: Path, state: Path, root: Path = Path("/")) -> PreparedBundle | None:
    opened = Bundle.open(bundle, verify=False)
    return find_prepared(opened, PreparationKey.of(opened, root), state)


def folders(state: Path) -> list[str]:
    return sorted(file.name for file in (state / "prepared").iterdir() if file.is_dir())


@pytest.mark.parametrize(
    ("weights", "dtype"),
    [
        *((weights, "f32") for weights in ("f32", "f16", "int8", "int4")),
        ("int8", "f16"),
        *(pytest.param(weights, "int8", marks=needs_int8) for weights in ("f32", "int8", "int4")),
    ],
)
def test_prepared_weights_give_the_same_samples(
    weights: str, dtype: str, make_bundle, state: Path
) -> None:
    bundle = make_bundle("tiny", weights, kv=dtype)
    common = {"threads": 1, "profile": kv_profile(dtype)}
    plain = Voice.load(bundle, prepare="never", **common)
    told = []
    made = Voice.load(
        bundle, prepare="auto", on_prepare=lambda *progress: told.append(progress), **common
    )
    names = {name for name, _, _ in told}
    assert [done for _, done, _ in told] == list(range(1, 8))
    assert names == set(Bundle.open(bundle).manifest.model["graphs"])
    found = Voice.load(bundle, prepare="auto", on_prepare=lambda *_: 1 / 0, **common)
    assert set(found.resources.costs) == set(made.resources.costs) == names
    for options in ({}, {"reference": TONE}, {"prompt_audio": TONE, "prompt_text": "well"}):
        said = [
            voice.say(TEXT, seed=3, max_len=4, steps=3, retry_badcase=False, **options).audio
            for voice in (plain, made, found)
        ]
        assert np.array_equal(said[0], said[1])
        assert np.array_equal(said[0], said[2])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_packed_weights_are_mapped_from_the_prepared_files(
    f32_bundle: Path, prepared: PreparedBundle
) -> None:
    voice = Voice.load(f32_bundle, threads=1, prepare="auto")
    maps = Path("/proc/self/maps").read_text("utf-8")
    for name in ("lm", "flow", "vae_decoder"):
        assert str(prepared.folder / f"{name}.weights") in maps
    assert voice.resources.not_prepared == ""


def test_every_file_is_described(prepared: PreparedBundle) -> None:
    assert set(os.listdir(prepared.folder)) == {*prepared.info.files, INFO}
    assert {f"{name}.onnx" for name in prepared.info.costs} <= set(prepared.info.files)
    assert prepared.damaged() == []


@pytest.mark.parametrize("name", ["lm.onnx", "lm.weights", "vae_decoder.weights"])
@pytest.mark.parametrize("harm", ["touched", "truncated", "grown", "deleted", "a folder"])
def test_files_that_changed_are_not_used_and_made_again(
    f32_bundle: Path, state: Path, prepared: PreparedBundle, name: str, harm: str
) -> None:
    file = prepared.folder / name
    if harm == "touched":
        os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    elif harm == "truncated":
        os.truncate(file, file.stat().st_size - 1)
    elif harm == "grown":
        with file.open("ab") as stream:
            stream.write(b"\0")
    else:
        file.unlink()
        if harm == "a folder":
            file.mkdir()
    assert find(f32_bundle, state) is None
    if name == "lm.weights":
        make(f32_bundle, state)
        assert find(f32_bundle, state) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\0", '{"bundle": 3}'])
def test_a_damaged_description_is_no_preparation(
    f32_bundle: Path, state: Path, prepared: PreparedBundle, text: str
) -> None:
    (prepared.folder / INFO).write_text(text)
    assert find(f32_bundle, state) is None
    (prepared.folder / INFO).write_bytes(b"\xff\xfe")
    assert find(f32_bundle, state) is None
    (prepared.folder / INFO).unlink()
    assert find(f32_bundle, state) is None


def test_prepared_files_of_another_key_under_this_name_are_not_used(
    f32_bundle: Path, int8_bundle: Path, state: Path, prepared: PreparedBundle
) -> None:
    other = PreparationKey.of(Bundle.open(int8_bundle))
    shutil.copytree(prepared.folder, state / "prepared" / other.folder_name)
    assert find(int8_bundle, state) is None


def test_the_key_is_of_the_cpu_the_runtime_and_the_bundle(
    f32_bundle: Path, int8_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Bundle.open(f32_bundle)
    avx = cpuinfo(tmp_path / "avx", "processor: 0\nflags\t\t: fpu avx2 fma\nbogomips: 1\n")
    key = PreparationKey.of(bundle, avx)
    same = cpuinfo(
        tmp_path / "same", "flags : fma fpu avx2\nbogomips: 9\n\nflags : fma fpu avx2\n"
    )
    assert PreparationKey.of(bundle, same) == key
    arm = "Features : asimd {}\nCPU implementer : 0x41\nCPU part : {}\n"
    others = [
        PreparationKey.of(bundle, cpuinfo(tmp_path / "old", "flags : fpu fma\n")),
        PreparationKey.of(bundle, cpuinfo(tmp_path / "a76", arm.format("i8mm", "0xd0b"))),
        PreparationKey.of(bundle, cpuinfo(tmp_path / "a72", arm.format("", "0xd08"))),
        PreparationKey.of(bundle, tmp_path / "no such file"),
        PreparationKey.of(Bundle.open(int8_bundle), avx),
    ]
    monkeypatch.setattr(onnxruntime, "__version__", "9.9.9")
    others.append(PreparationKey.of(bundle, avx))
    assert "9.9.9" in others[-1].runtime
    names = {other.folder_name for other in others} | {key.folder_name}
    assert len(names) == len(others) + 1
    assert [other.bundle_prefix == key.bundle_prefix for other in others] == [True] * 4 + [
        False, True,
    ]  # fmt: skip


def test_several_runtimes_and_cpus_share_a_state_folder(
    f32_bundle: Path, state: Path, prepared: PreparedBundle, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(onnxruntime, "__version__", "9.9.9")
    assert find(f32_bundle, state) is None
    newer = make(f32_bundle, state)
    monkeypatch.undo()
    assert find(f32_bundle, state) == prepared
    root = cpuinfo(tmp_path / "root", "flags : none\n")
    assert find(f32_bundle, state, root) is None
    other = make(f32_bundle, state, PreparationKey.of(Bundle.open(f32_bundle), root))
    assert find(f32_bundle, state, root) == other
    names = [entry.folder.name for entry in (prepared, newer, other)]
    assert folders(state) == sorted(names)


def test_what_killed_preparations_left_is_removed_whatever_they_were_for(
    f32_bundle: Path, state: Path
) -> None:
    prefix = PreparationKey.of(Bundle.open(f32_bundle)).bundle_prefix
    parent = state / "prepared"
    for name in (f".{prefix}-0123.999999999-0.part", f".{prefix}-4567.999999999-3.old"):
        (parent / name).mkdir(parents=True)
        (parent / name / "lm.weights").write_text("x")
    foreign = parent / ".fedcba9876543210-0123.999999999-0.part"
    foreign.mkdir()
    made = make(f32_bundle, state)
    # A folder that was to be replaced and never was is put back.
    assert folders(state) == sorted([foreign.name, f"{prefix}-4567", made.folder.name])


def test_a_flipped_bit_is_found_by_the_hash(prepared: PreparedBundle) -> None:
    file = prepared.folder / "lm.weights"
    times = file.stat()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert prepared.damaged() == ["lm.weights"]


def test_only_verified_bundles_are_prepared_whatever_the_options(
    f32_bundle: Path, tmp_path: Path, state: Path
) -> None:
    bundle = shutil.copytree(f32_bundle, tmp_path / "bundle")
    file = bundle / "graphs/lm.weights"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    # A later load with verification would trust the prepared files without reading these.
    with pytest.raises(BundleError, match=r"lm\.weights does not match"):
        Voice.load(bundle, threads=1, prepare="auto", verify=False)
    assert not state.exists()
    assert Voice.load(bundle, threads=1, prepare="never", verify=False).sample_rate == 48_000


def test_a_prepared_bundle_still_has_its_other_files_verified(
    f32_bundle: Path, tmp_path: Path, state: Path
) -> None:
    bundle = shutil.copytree(f32_bundle, tmp_path / "bundle")
    Voice.load(bundle, threads=1, prepare="auto")
    embedding = bundle / "embedding.bin"
    data = bytearray(embedding.read_bytes())
    data[100] ^= 1
    embedding.write_bytes(data)
    with pytest.raises(BundleError, match=r"embedding\.bin does not match"):
        Voice.load(bundle, threads=1, prepare="auto")


def test_a_bundle_is_hashed_once_per_load_even_when_preparing_fails(
    f32_bundle: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = Bundle.verify
    monkeypatch.setattr(
        Bundle, "verify", lambda self, **options: (calls.append(options), real(self, **options))
    )
    state.write_text("a file in its place")
    voice = Voice.load(f32_bundle, threads=1, prepare="auto")
    assert voice.resources.fallback
    assert calls == [{"skip_graphs": False, "skip_npu": True}]


def test_costs_are_no_less_than_what_was_measured_elsewhere(
    prepared: PreparedBundle, f32_bundle: Path
) -> None:
    spec = VoxCpm2Spec.model_validate(Bundle.open(f32_bundle).manifest.model)
    costs = prepared.info.costs
    assert set(costs) == set(spec.graphs)
    # The smallest graphs may fit into pages that are there already.
    assert all(cost.least_bytes >= 0 for cost in costs.values())
    assert all(cost.session_bytes >= 0 for cost in costs.values())
    # 4 patches of audio at once, and the activations of its widest layer.
    samples = 4 * spec.patch_size * spec.vae_encoder.hop * 4
    assert costs["vae_encoder"].most_bytes > 2 * samples
    # 256 rows, and the scores of each with 512 cached ones, in every head.
    assert costs["lm"].most_bytes > 256 * spec.hidden * 4 * 3


def test_a_run_costs_what_the_next_larger_one_did() -> None:
    cost = GraphCost(
        session_bytes=0,
        workspaces=tuple(Workspace(size=size, bytes=size * 10) for size in (1, 16, 64)),
    )
    assert [cost.workspace_bytes(size) for size in (1, 2, 16, 17, 64, 65)] == [
        10, 160, 160, 640, 640, 640,
    ]  # fmt: skip
    assert (cost.least_bytes, cost.most_bytes) == (10, 640)


def test_larger_runs_never_cost_less(prepared: PreparedBundle) -> None:
    for cost in prepared.info.costs.values():
        sizes = [entry.size for entry in cost.workspaces]
        found = [entry.bytes for entry in cost.workspaces]
        assert sizes == sorted(set(sizes))
        assert found == sorted(found)
    assert len(prepared.info.costs["lm"].workspaces) == 5


def test_a_layout_of_another_version_is_not_used(
    f32_bundle: Path, state: Path, prepared: PreparedBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Bundle.open(f32_bundle)
    key = PreparationKey.of(opened)
    newer = PreparationKey(key.bundle, key.cpu, key.runtime, layout=key.layout + 1)
    assert newer.folder_name != key.folder_name
    assert find_prepared(opened, newer, state) is None
    assert prepared_bundle.find_prepared(opened, key, state) is not None
