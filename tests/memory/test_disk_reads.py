"""Weights that are read again and again make a run slow; its warnings say why."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_tree import FakeTree

from edge_runtime.memory.disk_reads import disk_read_bytes, reread_warning
from edge_runtime.voice import Voice


def test_the_kernels_count_is_read_where_it_tells(tree: FakeTree) -> None:
    assert disk_read_bytes(tree.root) is None
    tree.write("proc/self/io", "rchar: 5\nread_bytes: 4096\nwrite_bytes: 7\n")
    assert disk_read_bytes(tree.root) == 4096


def test_reading_everything_once_is_no_reason_to_warn() -> None:
    assert reread_warning(0, 0) == reread_warning(10**9, 0) == ""
    assert reread_warning(10**9, 10**9) == ""
    assert "4.0 GB were read from disk, 2.0 times" in reread_warning(4 * 10**9, 2 * 10**9)


@pytest.mark.parametrize(("times", "warned"), [(1, False), (3, True)])
def test_a_run_counts_what_was_read_while_it_ran(
    f32_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, warned: bool
) -> None:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path))
    voice = Voice.load(f32_bundle, threads=1, prepare="auto")
    prepared = voice.resources.prepared
    assert prepared is not None
    size = sum(file.size for file in prepared.info.files.values())
    counts = iter((1000, 1000 + times * size))
    monkeypatch.setattr("edge_runtime.voice.disk_read_bytes", lambda: next(counts))
    metrics = voice.say("Hi.", seed=1, max_len=2).metrics
    assert metrics.disk_read_bytes == times * size
    assert any("did not stay in memory" in text for text in metrics.warnings) is warned
