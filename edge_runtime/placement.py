"""What runs where: a profile's wishes against the providers that work here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from device_profiles.providers import Provider
from device_profiles.schema import Profile
from edge_runtime.backends.providers import ProviderCheck
from edge_runtime.requirements import Shortfall

# The estimator, which `flow.place` speaks of; its time and condition tokens cost little.
FLOW_GRAPH, LM_GRAPH = "flow", "lm"
# Rockchip's NPU, or the toolkit's simulator of it.
NpuPlace = Literal["rknn", "rknn-sim"]
NPU_PLACES: tuple[NpuPlace, ...] = ("rknn", "rknn-sim")
_LIBRARIES = ("rknpu_driver", "librknnrt")


@dataclass(frozen=True)
class PlacementPlan:
    """Providers to try, in order, before the CPU, which is always the last.

    Attributes:
        general: For every graph that nothing else is said of.
        lm: For the language model.
        flow: For the flow estimator.
        npu: Where it is tried before those; None for nowhere.
        notes: What the profile asks for and does not get, with the reason.
    """

    general: tuple[Provider, ...] = ()
    lm: tuple[Provider, ...] = ()
    flow: tuple[Provider, ...] = ()
    npu: NpuPlace | None = None
    notes: tuple[str, ...] = ()

    def chain(self, graph: str) -> tuple[Provider, ...]:
        """For one graph."""
        return {FLOW_GRAPH: self.flow, LM_GRAPH: self.lm}.get(graph, self.general)

    @property
    def npu_note(self) -> str:
        """What to know before a bundle is loaded; empty where no NPU is meant."""
        if self.npu is None:
            return ""
        return (
            f"Whether the flow runs on {self.npu} is found out when a bundle is loaded on the "
            "board; where not, the CPU computes it."
        )

    @property
    def only_cpu(self) -> bool:
        """Whether no graph of ONNX Runtime is to leave the CPU."""
        return not (self.general or self.lm or self.flow)


def plan_placement(
    profile: Profile, checks: Sequence[ProviderCheck], missing: Sequence[Shortfall] = ()
) -> PlacementPlan:
    """Decide which providers each graph may use.

    TensorRT gets what `flow.place` gives it and nothing else: its engines are for fixed ranges of
    shapes, and building one takes minutes. The other providers get all graphs in the profile's
    order, the flow only where `flow.place` is not the CPU.

    Args:
        profile: Providers in order, and the flow's place.
        checks: Result of `check_providers`.
        missing: Versions that are too old.
    """
    found = {check.name: check for check in checks}
    wanted = [entry for entry in profile.providers if entry.name != "cpu"]
    notes, usable = [], []
    # Jetson Linux brings CUDA and TensorRT along.
    old = next((s for s in missing if s.name == "l4t"), None)
    if wanted and old is not None:
        names = " and ".join(entry.name for entry in wanted)
        notes.append(_note(profile, f"asks for {names}", old.reason, old.remedy))
        wanted = []
    for entry in wanted:
        check = found[entry.name]
        if check.passed:
            usable.append(entry)
        else:
            notes.append(_note(profile, f"asks for {entry.name}", check.reason, check.remedy))
    general = tuple(entry for entry in usable if entry.name != "tensorrt")
    lm = []
    for entry in general:
        attention = found[entry.name].attention
        if attention:
            notes.append(_note(profile, f"asks for the LM on {entry.name}", attention, ""))
        else:
            lm.append(entry)
    place, flow = profile.flow.place, general
    npu = next((name for name in NPU_PLACES if name == place), None)
    if place == "cpu" or npu is not None:
        flow = ()
    lacking = next((s for s in missing if s.name in _LIBRARIES), None)
    if npu == "rknn" and lacking is not None:
        wish = "asks for the flow on rknn"
        notes.append(_note(profile, wish, lacking.reason, lacking.remedy))
        npu = None
    first = tuple(entry for entry in usable if entry.name == place)
    return PlacementPlan(
        general=general,
        lm=tuple(lm),
        flow=first + tuple(entry for entry in flow if entry.name != place),
        npu=npu,
        notes=tuple(notes),
    )


def _note(profile: Profile, wish: str, reason: str, remedy: str) -> str:
    return f"Profile {profile.name} {wish}, which is not used: {reason}. {remedy}".strip()
