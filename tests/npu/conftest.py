"""A bundle with a model for the NPU, and boards with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stand_in_npu import StandInNpu, add_npu_model, npu_root

from device_profiles.catalog import load_profile
from device_profiles.flow_placement import FlowSection
from device_profiles.hardware import RequiresSection
from device_profiles.schema import Profile
from edge_runtime.npu import trial


@pytest.fixture(scope="session")
def npu_bundle(f32_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return add_npu_model(f32_bundle, tmp_path_factory.mktemp("npu") / "bundle")


@pytest.fixture
def make_npu(
    npu_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., StandInNpu]]:
    """``make_npu(fault=...)``: the package in place, on a board that is as fast as it says."""
    made: list[StandInNpu] = []

    def make(
        *, library: str = "2.5.0", root_driver: str = "", timed: bool = False, **faults: object
    ) -> StandInNpu:
        npu = StandInNpu(npu_bundle / "graphs/flow.onnx", **faults)
        npu.install(monkeypatch, npu_root(tmp_path / "root", library, root_driver))
        if not timed:
            # Both compute on this CPU, so that which one is faster is chance.
            monkeypatch.setattr(trial, "_milliseconds", lambda graph, run: 1.0)
        made.append(npu)
        return npu

    yield make
    for npu in made:
        npu.never.set()


def npu_profile(**flow: object) -> Profile:
    """A board with an NPU; tiny models fit anywhere."""
    base = load_profile("rk3588-generic")
    section = FlowSection.model_validate(
        {**base.flow.model_dump(), "npu_limit_ms": 20_000, **flow}
    )
    return base.model_copy(
        update={"flow": section, "requires": RequiresSection(librknnrt="2.5.0")}
    )


@pytest.fixture(scope="session")
def profile_of() -> Callable[..., Profile]:
    return npu_profile
