"""Minimum versions of a profile against what a board has."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_profiles.catalog import load_profile
from device_profiles.detect import BoardFacts, detect
from device_profiles.hardware import RequiresSection
from device_profiles.probes.npu import NpuFacts
from edge_runtime.errors import ProfileError
from edge_runtime.requirements import installed_versions, older, require, shortfalls

TREES = Path(__file__).parents[1] / "boards/trees"


@pytest.mark.parametrize(
    ("version", "needed", "expected"),
    [
        ("1.9", "1.10", True), ("1.23", "1.23.0", False), ("1.23.0", "1.23", False),
        ("1.22.1", "1.23", True), ("36.4.3", "36.4", False), ("35.6.1", "36.4", True),
        ("1.24.0.dev20250101", "1.24", False), ("2.0", "1.99.9", False), ("0.9.6", "0.9.6", False),
    ],
)  # fmt: skip
def test_versions_are_compared_by_number(version: str, needed: str, expected: bool) -> None:
    assert older(version, needed) is expected


def test_what_cannot_be_read_is_good_enough() -> None:
    orin = load_profile("jetson-orin-nano-8gb")
    assert orin.requires.l4t
    assert shortfalls(orin, {"python": "3.11", "onnxruntime": "1.32.0", "l4t": ""}) == ()
    assert shortfalls(orin, {}) == ()


def test_an_old_jetson_linux_is_found_in_a_tree() -> None:
    facts = [detect(tree, machine="aarch64") for tree in sorted(TREES.iterdir()) if tree.is_dir()]
    old = [one for one in facts if one.soc == "tegra234" and one.l4t.startswith("35.")]
    assert old
    found = shortfalls(load_profile("jetson-orin-nano-8gb"), installed_versions(old[0]))
    assert [(one.name, one.essential) for one in found] == [("l4t", False)]
    assert found[0].found == old[0].l4t


def test_an_old_npu_driver_is_found() -> None:
    facts = BoardFacts(machine="aarch64", npu=NpuFacts("rknpu", "0.8.2"))
    (found,) = shortfalls(load_profile("rock-5b"), installed_versions(facts))
    assert found.reason == "it needs the NPU driver 0.9.6 or newer, this is 0.8.2"


@pytest.mark.parametrize("key", ["python", "onnxruntime"])
def test_nothing_runs_without_python_and_onnxruntime(key: str) -> None:
    profile = load_profile("x86-vnni")
    strict = profile.model_copy(update={"requires": RequiresSection(**{key: "99.9"})})
    with pytest.raises(ProfileError, match=r"x86-vnni cannot be used: it needs .* 99\.9") as caught:
        require(strict, shortfalls(strict))
    assert caught.value.remedy
    require(profile, shortfalls(profile))
