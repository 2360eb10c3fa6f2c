"""A tiny checkpoint and what is made of it, once per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from device_profiles.weight_formats import PlanName
from edge_runtime.memory import guard
from edge_runtime.voice import Voice
from export.synthetic import RECIPES, make_checkpoint
from export.voxcpm2.exporter import export_voxcpm2
from export.weights.plan import WeightPlan

MakeBundle = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests prepare stays out of the user's state folder; their processes inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOARDVOICE_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def no_pressure_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs on this machine that wait for memory do not change what is kept here."""
    real = guard.memory_stall_percent
    monkeypatch.setattr(
        guard, "memory_stall_percent", lambda root: None if root == Path("/") else real(root)
    )


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", RECIPES["tiny"])


@pytest.fixture(scope="session")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    """``make_bundle(recipe, weights)``; each is made once. Do not change what it returns.

    With ``kv="int8"`` it has the LM over an int8 cache as well.
    """
    made: dict[tuple[str, str, bool], Path] = {}

    def make(recipe: str = "tiny", weights: PlanName = "f32", *, kv: str = "f32") -> Path:
        key = recipe, weights, kv == "int8"
        if key not in made:
            folder = tmp_path_factory.mktemp("bundles")
            checkpoint = make_checkpoint(folder / recipe, RECIPES[recipe])
            export_voxcpm2(
                checkpoint, folder / "bundle", weights=weights, name=recipe, int8_kv=key[2]
            )
            made[key] = folder / "bundle"
        return made[key]

    return make


@pytest.fixture(scope="session")
def f32_bundle(make_bundle: MakeBundle) -> Path:
    return make_bundle("tiny", "f32")


@pytest.fixture(scope="session")
def int8_bundle(make_bundle: MakeBundle) -> Path:
    return make_bundle("tiny", "int8")


@pytest.fixture(scope="session")
def dynamic_int8_bundle(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    """Flow and patch encoder in dynamically quantized products alone, as boards with an NPU or
    TensorRT have them."""
    out = tmp_path_factory.mktemp("dynamic") / "bundle"
    formats = {"patch_encoder": "int8", "flow": "int8", "flow.down": "int8-rows"}
    export_voxcpm2(tiny_checkpoint, out, weights=WeightPlan.named("int8", formats), name="tiny")
    return out


@pytest.fixture(scope="session")
def int4_bundle(make_bundle: MakeBundle) -> Path:
    return make_bundle("tiny", "int4")


@pytest.fixture(scope="session")
def f16_bundle(make_bundle: MakeBundle) -> Path:
    return make_bundle("tiny", "f16")


@pytest.fixture(scope="session")
def f32_voice(f32_bundle: Path) -> Voice:
    return Voice.load(f32_bundle, threads=1)


@pytest.fixture(scope="session")
def int8_voice(int8_bundle: Path) -> Voice:
    return Voice.load(int8_bundle, threads=1)
