"""Results: percentiles, files, and what counts as a difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import MACHINE, SETUP, result, stat

from edge_runtime.bench.compare import compare, differences
from edge_runtime.bench.results import BenchResult, Cold, Stat
from edge_runtime.errors import OutputError, UsageError


def verdicts(now: BenchResult, before: BenchResult) -> dict[str, str]:
    return {row.name: row.verdict for row in compare(now, before)}


def test_percentiles_are_of_all_samples_and_medians_of_each_run() -> None:
    found = Stat.of([[1.0, 2.0, 9.0], [], [4.0, 4.0]])
    assert found is not None
    assert (found.count, found.min, found.p50, found.max) == (5, 1.0, 4.0, 9.0)
    assert found.p50 <= found.p90 <= found.p99 <= found.max
    assert found.runs == (2.0, 4.0)
    assert Stat.of([[], []]) is None


def test_the_same_result_has_no_differences() -> None:
    assert set(verdicts(result(), result()).values()) == {"same"}
    assert differences(result(), result()) == {}


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        ((110.0, 120.0), (100.0, 101.0), "slower"),
        ((110.0, 104.0), (100.0, 101.0), "same"),
        ((110.0, 120.0), (100.0, 119.0), "same"),
        ((90.0, 94.0), (100.0, 101.0), "faster"),
        ((90.0, 99.0), (100.0, 101.0), "same"),
        ((104.0,), (100.0,), "same"),
        ((106.0,), (100.0,), "slower"),
    ],
)
def test_slower_means_that_every_run_is_beyond_every_earlier_one(
    now: tuple[float, ...], before: tuple[float, ...], verdict: str
) -> None:
    rows = compare(result(*now), result(*before))
    (row,) = [row for row in rows if row.name == "patch ms"]
    assert row.verdict == verdict
    assert row.regression is (verdict == "slower")


def test_memory_that_grew_is_a_regression() -> None:
    rows = compare(result(peak_rss_anon_mb=200.0), result())
    assert [(row.name, row.ratio) for row in rows if row.regression] == [("peak RssAnon MB", 2.0)]


def test_figures_that_only_one_has_are_left_out() -> None:
    cold = Cold(
        import_ms=1, load_ms=1, first_audio_ms=1, start_to_audio_ms=3, disk_read_mb=None
    )  # fmt: skip
    names = verdicts(result(cold=cold, components={}), result())
    assert "cold: start to audio ms" not in names
    assert "flow ms" not in names
    assert "cold: start to audio ms" in verdicts(result(cold=cold), result(cold=cold))


def test_a_ratio_to_nothing_is_no_number() -> None:
    (row,) = [row for row in compare(result(kv_mb=1.0), result(kv_mb=0.0)) if row.name == "KV MB"]
    assert row.as_dict()["ratio"] is None


def test_other_machines_and_settings_are_named() -> None:
    now = result(
        machine=MACHINE.model_copy(update={"cpu": "B"}),
        setup=SETUP.model_copy(update={"threads": 4}),
    )
    assert differences(now, result()) == {
        "machine.cpu": ("B", "A CPU"), "setup.threads": (4, 2)
    }  # fmt: skip


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    result(components={}).save(file)
    assert BenchResult.load(file) == result(components={})
    with pytest.raises(OutputError, match="none"):
        result().save(tmp_path / "none" / "result.json")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": 2}, "format 2 is not 1"),
        ({"patch_ms": 3}, "patch_ms"),
        ({"more": 3}, "more"),
    ],
)
def test_a_file_of_another_layout_is_refused(
    tmp_path: Path, change: dict[str, object], named: str
) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result().model_dump() | change), "utf-8")
    with pytest.raises(UsageError, match=named):
        BenchResult.load(file)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff"])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"result\.json"):
        BenchResult.load(file)
    with pytest.raises(UsageError, match="is no benchmark result"):
        BenchResult.load(tmp_path / "none.json")


def test_stat_helper_has_one_run_per_value() -> None:
    assert stat(1.0, 3.0).runs == (1.0, 3.0)
