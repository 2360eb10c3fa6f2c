"""What runs take is asked for, and prefixes are read in pieces that fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_tree import MIB, FakeTree
from watched_backend import WatchedBackend, never

from device_profiles.catalog import load_profile
from device_profiles.schema import KvSection
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.bundle import Bundle
from edge_runtime.errors import MemoryBudgetError
from edge_runtime.kv_cache import KVCache, KVShape
from edge_runtime.memory.guard import MARGIN_BYTES, MemoryGuard
from edge_runtime.memory.limits import MemorySettings
from edge_runtime.prepare.prepared_info import GraphCost, Workspace
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.model import read_spec
from edge_runtime.voxcpm2.run_memory import RunMemory

HARD = 1000
ROW = 1 << 10


def cost(name: str) -> GraphCost:
    """1 MiB per row or patch."""
    sizes = (1, 16, 64, 128, 256)
    return GraphCost(
        session_bytes=0, workspaces=tuple(Workspace(size=size, bytes=size * MIB) for size in sizes)
    )


def memory(tree: FakeTree, spare: int, soft: int | None = None) -> RunMemory:
    tree.status(anonymous=HARD - spare)
    settings = MemorySettings(
        hard_bytes=HARD * MIB + MARGIN_BYTES,
        soft_bytes=None if soft is None else (HARD - spare + soft) * MIB,
    )
    return RunMemory(MemoryGuard(settings, tree.root), cost, ROW)


@pytest.mark.parametrize(
    ("spare", "left", "count"),
    [
        (500, 1000, 256), (257, 300, 256), (255, 300, 64), (130, 300, 64), (129, 128, 128),
        (129, 100, 100), (64, 300, 16), (65, 300, 64), (17, 300, 16), (17, 3, 3),
    ],
)  # fmt: skip
def test_a_prefix_is_read_in_the_largest_pieces_that_there_is_room_for(
    tree: FakeTree, spare: int, left: int, count: int
) -> None:
    assert memory(tree, spare).rows(left, 0) == count


def test_where_not_even_the_smallest_piece_fits_it_is_refused(tree: FakeTree) -> None:
    with pytest.raises(MemoryBudgetError, match="Reading the prefix needs 17 MiB"):
        memory(tree, 16).rows(300, 0)


def test_near_a_soft_limit_pieces_are_small_and_nothing_is_refused(tree: FakeTree) -> None:
    assert memory(tree, 500, soft=300).rows(300, 0) == 256
    assert memory(tree, 500, soft=200).rows(300, 0) == 64
    assert memory(tree, 500, soft=-10).rows(300, 0) == 64
    assert memory(tree, 30, soft=-10).rows(300, 0) == 16


def test_pieces_are_large_again_when_there_is_room_again(tree: FakeTree) -> None:
    run = memory(tree, 100)
    assert [run.rows(300, 0), run.rows(236, 0)] == [64, 64]
    tree.status(anonymous=10)
    assert run.rows(172, 0) == 172
    tree.status(anonymous=HARD - 20)
    assert run.rows(300, 0) == 16
    details = [event.detail for event in run._guard.events]
    assert details == [f"reads the prefix {count} rows at a time" for count in (64, 16)]


def test_what_is_given_back_counts_once_and_what_stays_until_it_is_there(tree: FakeTree) -> None:
    run = memory(tree, 40)
    # Five graphs keep 1 MiB each; the largest of the others takes 16.
    run.start(rows=300, reference_patches=0, capacity=256, fresh_bytes=19 * MIB)
    run.start(rows=300, reference_patches=0, capacity=256, fresh_bytes=24 * MIB)
    run.forget("flow")
    with pytest.raises(MemoryBudgetError, match="Speaking needs 41 MiB"):
        run.start(rows=300, reference_patches=0, capacity=256, fresh_bytes=24 * MIB)
    run.start(rows=3, reference_patches=16, capacity=256, fresh_bytes=23 * MIB)
    with pytest.raises(MemoryBudgetError, match="Speaking needs 64 MiB"):
        run.start(rows=3, reference_patches=17, capacity=256, fresh_bytes=0)
    run.clip(16)
    with pytest.raises(MemoryBudgetError, match="Encoding the reference needs 64 MiB"):
        run.clip(17)
    with pytest.raises(MemoryBudgetError, match="Encoding the prefix needs 64 MiB"):
        run.prefix(17)


@pytest.mark.parametrize("weights", ["f32", "int8", "int4"])
def test_pieces_of_any_size_leave_the_same_rows(weights: str, make_bundle) -> None:
    bundle = make_bundle("tiny", weights)
    spec = read_spec(Bundle.open(bundle, verify=False))
    graph = OrtBackend(1, spinning=False).load(bundle / "graphs/lm.onnx")
    shape = KVShape(spec.kv.layers, spec.kv.num_kv_heads, spec.kv.head_size, spec.kv.max_rows, 256)
    random = np.random.default_rng(0)
    # Numbers that leave a single row over are the hard ones.
    for count in (2, 3, 17, 18, 33, 65, 66, 100, 129, 257, 300):
        rows = random.standard_normal((count, spec.hidden)).astype(np.float32)
        found = []
        for most in (256, 64, 16):
            lm = LanguageModel(
                graph, spec, KVCache(shape, count), choose_rows=lambda left, _, m=most: min(left, m)
            )
            assert lm.prefill(rows, np.zeros(count, np.float32))
            assert lm.cache.rows == count
            kept = [buffer[:, :, :count] for buffer in lm.cache.buffers]
            found.append(np.concatenate([lm.output.mu.ravel(), *(rows.ravel() for rows in kept)]))
        assert np.array_equal(found[0], found[1]), count
        assert np.array_equal(found[0], found[2]), count


def test_the_guard_is_asked_before_every_chunk_of_a_reference(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = WatchedBackend(never)
    voice = Voice.load(f32_bundle, backend=backend)
    asked = []
    real = voice.resources.guard.check

    def check(purpose: str, needed: int = 0) -> None:
        asked.append((purpose, needed, backend.watch.runs["vae_encoder"]))
        if len(asked) == 3:
            raise MemoryBudgetError("A neighbour took it.")
        real(purpose, needed)

    monkeypatch.setattr(voice.resources.guard, "check", check)
    clip = np.full(16_000 * 3, 0.1, np.float32), 16_000
    with pytest.raises(MemoryBudgetError, match="neighbour"):
        voice.say("hello", reference=clip, seed=1)
    needed = voice._model._model._cost("vae_encoder").workspace_bytes(4)
    assert asked == [("Encoding the reference", needed, ran) for ran in range(3)]


def test_more_rows_in_the_cache_cost_what_was_measured(
    tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = memory(tree, 100)
    assert run.rows(64, 900) == 64
    grows = GraphCost(
        session_bytes=0,
        workspaces=tuple(
            Workspace(size=size, bytes=size * MIB, cached=256, per_cached=size << 10)
            for size in (16, 64)
        ),
    )
    assert grows.workspace_bytes(64, 256) == 64 * MIB
    # 900 rows count as 1,024.
    assert grows.workspace_bytes(64, 900) == 64 * MIB + 64 * 768 * 1024
    monkeypatch.setattr(run, "_cost", lambda _: grows)
    assert run.rows(64, 400) == 64
    assert run.rows(64, 900) == 16


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_estimates_cover_what_is_measured(
    f32_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path))
    profile = load_profile("generic-x86-64").model_copy(update={"kv": KvSection(dtype=dtype)})
    measured, plain = (
        Voice.load(f32_bundle, threads=1, profile=profile, prepare=prepare)._model._model
        for prepare in ("auto", "never")
    )
    for name in ("lm", "patch_encoder", "vae_encoder", "flow", "vae_decoder"):
        for entry in measured._cost(name).workspaces:
            for cached in (1, 256, 512):
                planned = plain._cost(name).workspace_bytes(entry.size, cached)
                assert planned >= entry.with_cached(cached), (name, entry)
    # 256 rows hold their scores with every cached one, in 4 heads, or not.
    assert (measured._cost("lm").workspaces[-1].per_cached > 3000) == (dtype == "f16")
