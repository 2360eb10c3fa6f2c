"""A plan: does a bundle fit a board, how fast would it speak there, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from device_profiles.schema import KvSection, Profile
from edge_runtime.backends.providers import ProviderCheck
from edge_runtime.bench.work import Work, graph_work
from edge_runtime.bundle import Bundle, BundleFile, graph_name
from edge_runtime.errors import BundleError, CapacityError
from edge_runtime.loader import family_module
from edge_runtime.placement import FLOW_GRAPH, PlacementPlan, plan_placement
from edge_runtime.plan.estimate import Estimate, estimate, reformatted
from edge_runtime.plan.memory import MemoryPlan, measured_costs, npu_model, plan_memory
from edge_runtime.plan.request import FamilyPlan, PlannedRun, PlanRequest
from edge_runtime.plan.speeds import Place, Speeds, UnknownSpeedError, speeds_of, with_cycles
from edge_runtime.presets import PRESETS

# The only layers that int4 pays for are the LM's.
_INT4_GRAPH = "lm"
_INT4 = {"int8-128": "int4-32", "int8-32": "int4-32"}


@dataclass(frozen=True)
class Alternative:
    """One change and what comes of it.

    Attributes:
        change: What to change, and how.
        verdict: Whether it fits then.
        needed_gib: Smallest usual size of memory that holds it.
        anonymous_bytes: Memory that the kernel cannot drop.
        mapped_bytes: Weights mapped from files.
        ms_per_patch: Expected then; None without figures.
        rtf: Expected then.
    """

    change: str
    verdict: str
    needed_gib: int | None
    anonymous_bytes: int
    mapped_bytes: int
    ms_per_patch: float | None
    rtf: float | None


@dataclass(frozen=True)
class Plan:
    """Everything there is to say before one has the board.

    Attributes:
        bundle: Name of the bundle.
        weights: Its weight plan.
        profile: Profile.
        title: Board.
        request: What is spoken.
        prefix_rows: KV rows before the first patch.
        rows: KV rows at the end.
        kv_dtype: Storage of keys and values.
        memory: Memory.
        cpu: Expected times on the CPU alone; None without figures.
        placed: The same as the profile places graphs, where that is not the CPU.
        no_estimate: Why there is no estimate; empty if there is.
        figures: Figures used: key, value and source.
        assumed: What was assumed.
        alternatives: Changes worth a thought, where it does not fit or is slower than speech.
        notes: What to know about what the profile asks for.
        verified: On what hardware the profile was run; empty for never.
    """

    bundle: str
    weights: str
    profile: str
    title: str
    request: PlanRequest
    prefix_rows: int
    rows: int
    kv_dtype: str
    memory: MemoryPlan
    cpu: Estimate | None
    placed: Estimate | None
    no_estimate: str
    figures: tuple[tuple[str, float, str], ...]
    assumed: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    notes: tuple[str, ...]
    verified: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        details = asdict(self)
        details["figures"] = [
            {"name": name, "value": value, "source": source} for name, value, source in self.figures
        ]
        return details


@dataclass(frozen=True)
class _Case:
    """One variant: bundle, board, request, and weight formats that differ."""

    bundle: Bundle
    profile: Profile
    request: PlanRequest
    formats: Mapping[str, str] = field(default_factory=dict)


class Planner:
    """Plans for one bundle; its graphs are counted once for all boards.

    Args:
        bundle: An opened bundle; its weights are not read.
        state: State folder, for what this machine measured.
    """

    def __init__(self, bundle: Bundle, state: Path) -> None:
        self._bundle = bundle
        self._state = state
        self._family = family_module(bundle)
        self._counted: dict[tuple[object, ...], Work] = {}

    def plan(self, profile: Profile, request: PlanRequest) -> Plan:
        """Plan a request on a board.

        Raises:
            BundleError: The bundle has no graph for the profile's KV cache.
            CapacityError: The request needs more KV rows than there are.
        """
        case = _Case(self._bundle, profile, request)
        runs = self._runs(case)
        memory = self._memory(case, runs)
        cpu = placed = None
        used: list[tuple[str, float, str]] = []
        assumed: list[str] = []
        reason = ""
        try:
            cpu = self._estimate(case, runs, used, assumed, everything_on_cpu=True)
            if any(_place(profile, run) != "cpu" for run in runs.runs):
                placed = self._estimate(case, runs, used, assumed, everything_on_cpu=False)
        except UnknownSpeedError as error:
            reason = str(error)
        manifest = self._bundle.manifest
        slow = cpu is not None and cpu.rtf > 1
        return Plan(
            bundle=manifest.name,
            weights=manifest.weights,
            profile=profile.name,
            title=profile.title,
            request=request,
            prefix_rows=runs.prefix_rows,
            rows=runs.rows,
            kv_dtype=profile.kv.dtype,
            memory=memory,
            cpu=cpu,
            placed=placed,
            no_estimate=reason,
            figures=tuple(dict.fromkeys(used)),
            assumed=tuple(dict.fromkeys(assumed)),
            alternatives=self._alternatives(case, memory)
            if slow or memory.verdict != "fits" else (),
            notes=_notes(profile, self._bundle),
            verified=profile.verified,
        )  # fmt: skip

    def _runs(self, case: _Case) -> FamilyPlan:
        planned: FamilyPlan = self._family.plan(
            case.bundle.manifest.model, case.profile, case.request
        )
        return planned

    def _memory(self, case: _Case, runs: FamilyPlan) -> MemoryPlan:
        kv_dtype = case.profile.kv.dtype
        return plan_memory(
            case.bundle, case.profile, runs.graphs, runs.kv_bytes,
            measured_costs(self._bundle, kv_dtype, self._state),
            self._family.workspaces(case.bundle.manifest.model, kv_dtype),
            case.request.memory_bytes,
        )  # fmt: skip

    def _estimate(
        self,
        case: _Case,
        runs: FamilyPlan,
        used: list[tuple[str, float, str]],
        assumed: list[str],
        *,
        everything_on_cpu: bool,
    ) -> Estimate:
        profile, known = case.profile, dict[Place, Speeds]()
        for run in runs.runs:
            place = "cpu" if everything_on_cpu else _place(profile, run)
            if place not in known:
                known[place] = speeds_of(profile, place, case.request.threads)
                model = npu_model(case.bundle, profile)
                if place == "rknn" and model is not None and model.cycles:
                    known[place] = with_cycles(known[place], FLOW_GRAPH, model.cycles)
                used += known[place].used
                assumed += known[place].assumed

        def speeds_for(run: PlannedRun) -> Speeds:
            return known["cpu" if everything_on_cpu else _place(profile, run)]

        def count(run: PlannedRun) -> Work:
            work = self._count(run, profile.kv.dtype)
            changes = case.formats and run.graph == _INT4_GRAPH
            return reformatted(work, case.formats) if changes else work

        return estimate(runs, count, speeds_for, case.request.patches)

    def _count(self, run: PlannedRun, kv_dtype: str) -> Work:
        file = self._bundle.graphs(kv_dtype)[run.graph]
        key = file, tuple(sorted(run.shapes.items()))
        if key not in self._counted:
            self._counted[key] = graph_work(self._bundle.path(file), run.shapes)
        return self._counted[key]

    def _alternatives(self, case: _Case, memory: MemoryPlan) -> tuple[Alternative, ...]:
        """Variants that may fit better or be faster; only those that can be planned."""
        found = []
        for change, variant in self._variants(case, fits=memory.verdict == "fits"):
            try:
                runs = self._runs(variant)
                planned = self._memory(variant, runs)
            except (BundleError, CapacityError):
                continue
            try:
                times = self._estimate(variant, runs, [], [], everything_on_cpu=True)
            except UnknownSpeedError:
                times = None
            found.append(
                Alternative(
                    change=change,
                    verdict=planned.verdict,
                    needed_gib=planned.needed_gib,
                    anonymous_bytes=planned.anonymous_bytes,
                    mapped_bytes=planned.mapped_bytes,
                    ms_per_patch=times.ms_per_patch if times else None,
                    rtf=times.rtf if times else None,
                )
            )
        return tuple(found)

    def _variants(self, case: _Case, *, fits: bool) -> list[tuple[str, _Case]]:
        found: list[tuple[str, _Case]] = []
        int4 = self._int4(case)
        if int4 is not None:
            found.append(("int4 weights in the LM: export --weights int4", int4))
        request, kv = case.request, case.profile.kv
        if not fits:
            if kv.dtype == "f32":
                profile = _with_kv(case.profile, dtype="f16")
                found.append(("kv.dtype f16 in the profile", replace(case, profile=profile)))
            if request.patches > 1:
                half = replace(request, patches=request.patches // 2)
                found.append((f"--max-len {half.patches}", replace(case, request=half)))
            if request.reference_s:
                voice = replace(request, reference_s=min(request.reference_s / 2, 5.0))
                found.append(
                    (f"a reference of {voice.reference_s:g} s", replace(case, request=voice))
                )
            if kv.pool_mib or kv.kept_voices_mib:
                profile = _with_kv(case.profile, pool_mib=0, kept_voices_mib=0)
                change = "kv.pool_mib and kv.kept_voices_mib 0 in the profile"
                found.append((change, replace(case, profile=profile)))
        faster = [
            name for name, preset in PRESETS.items() if preset.steps < request.euler_steps
        ]  # fmt: skip
        for name in faster:
            quick = replace(request, preset=name, steps=None)
            found.append((f"--preset {name}", replace(case, request=quick)))
        if int4 is not None and faster:
            quick = replace(request, preset=faster[-1], steps=None)
            both = replace(int4, request=quick)
            found.append((f"int4 weights in the LM and --preset {faster[-1]}", both))
        return found

    def _int4(self, case: _Case) -> _Case | None:
        """The bundle as an int4 export would have it; None where that changes nothing."""
        files = dict(case.bundle.manifest.files)
        changed = False
        counted: set[str] = set()
        for run in self._runs(case).runs:
            if run.graph in counted or run.graph != _INT4_GRAPH:
                continue
            counted.add(run.graph)
            work = self._count(run, case.profile.kv.dtype)
            saved = work.weight_bytes - reformatted(work, _INT4).weight_bytes
            if saved <= 0:
                continue
            file = case.bundle.graphs(case.profile.kv.dtype)[run.graph]
            name = f"{file.rpartition('/')[0]}/{graph_name(file)}.weights"
            entry = files.get(name)
            if entry is not None:
                size = max(entry.size - saved, 0)
                files[name] = BundleFile(size=size, sha256=entry.sha256)
                changed = True
        if not changed:
            return None
        manifest = case.bundle.manifest.model_copy(update={"files": files, "weights": "int4"})
        return replace(case, bundle=Bundle(case.bundle.folder, manifest), formats=_INT4)


def _placement(profile: Profile) -> PlacementPlan:
    """The runtime's own, if every provider that the profile asks for worked."""
    wanted = [entry.name for entry in profile.providers if entry.name != "cpu"]
    return plan_placement(profile, [ProviderCheck(name, name) for name in wanted])


def _place(profile: Profile, run: PlannedRun) -> Place:
    """Where a run would be computed."""
    flow = run.component == FLOW_GRAPH
    if flow and profile.flow.place == "rknn":
        return "rknn"
    chain = _placement(profile).chain(FLOW_GRAPH if flow else run.graph)
    return chain[0].name if chain else "cpu"


def _notes(profile: Profile, bundle: Bundle) -> tuple[str, ...]:
    wanted = [entry.name for entry in profile.providers if entry.name != "cpu"]
    plan = _placement(profile)
    notes = (*plan.notes, *filter(None, (plan.npu_note,)))
    if plan.npu is not None and npu_model(bundle, profile) is None:
        notes += (
            "The bundle has no model for this NPU: as it is, the CPU computes the flow "
            "(docs/npu.md).",
        )
    if not wanted:
        return notes
    return (
        f"Whether {' and '.join(wanted)} works is found out on the board; where not, the CPU "
        "computes it.",
        "Memory is that of the CPU alone: copies of weights for a GPU and what its libraries take "
        "are not in it.",
        *notes,
    )


def _with_kv(profile: Profile, **changes: Any) -> Profile:
    kv: KvSection = profile.kv.model_copy(update=changes)
    return profile.model_copy(update={"kv": kv})
