"""Memory that a GPU shares with the system: it shows only in what is left there."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from fake_tree import MIB, FakeTree

from device_profiles.catalog import load_profile
from edge_runtime.backends.protocol import Backend
from edge_runtime.bundle import Bundle
from edge_runtime.errors import MemoryBudgetError
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.memory.limits import MemorySettings
from edge_runtime.placement_report import PlacementReport
from edge_runtime.resources import Resources

GRAPH = "graphs/flow_time.onnx"


class SharingBackend:
    """Loads nothing; 300 MiB of the system are gone afterwards."""

    def __init__(self, tree: FakeTree, report: PlacementReport, place: str) -> None:
        self._tree, self._report, self._place = tree, report, place

    def load(self, path: Path) -> object:
        self._report.placed(path.stem, self._place)
        self._tree.meminfo(available=2700)
        return object()


def load(tree: FakeTree, bundle: Path, place: str, **limits: int) -> Resources:
    tree.meminfo(available=3000)
    tree.status(anonymous=100)
    guard, report = MemoryGuard(MemorySettings(**limits), root=tree.root), PlacementReport()
    resources = Resources(
        cast(Backend, SharingBackend(tree, report, place)), load_profile("generic-x86-64"),
        guard, placement=report,
    )  # fmt: skip
    resources.load(Bundle.open(bundle), GRAPH)
    return resources


@pytest.mark.parametrize("place", ["cuda", "tensorrt", "cpu"])
def test_what_a_device_took_counts_against_the_hard_limit(
    f32_bundle: Path, tree: FakeTree, place: str
) -> None:
    resources = load(tree, f32_bundle, place, hard_bytes=1024 * MIB)
    guard = resources.guard
    share = 0 if place == "cpu" else 300
    left = {limit.name: limit.available // MIB for limit in guard.limits()}
    assert left["hard limit"] == 1024 - 100 - share
    # There it shows by itself, and counts once.
    assert left["MemAvailable less the reserve"] == 2700 - 64
    assert resources.measured["flow_time"] // MIB == share
    guard.reserve((900 - share) * MIB, "A test")
    with pytest.raises(MemoryBudgetError, match="hard limit"):
        guard.reserve((1024 - 100 - share) * MIB, "A test")


def test_above_the_soft_limit_through_a_device_things_are_given_back(
    f32_bundle: Path, tree: FakeTree
) -> None:
    guard = load(tree, f32_bundle, "cuda", soft_bytes=350 * MIB).guard
    assert not guard.has_room(MIB)
    assert guard.has_room(MIB, soft=False)


def test_a_graph_that_is_loaded_again_counts_once(f32_bundle: Path, tree: FakeTree) -> None:
    resources = load(tree, f32_bundle, "cuda", hard_bytes=1024 * MIB)
    tree.meminfo(available=3000)
    resources.load(Bundle.open(f32_bundle), GRAPH)
    assert resources.guard.device_bytes == {"flow_time": 300 * MIB}
