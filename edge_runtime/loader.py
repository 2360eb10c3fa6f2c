"""From a bundle folder to a loaded family: profile, limits, prepared weights, back end."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any, get_args

from pydantic import ValidationError

from device_profiles.catalog import ProfileLoadError, load_profile
from device_profiles.detect import detect
from device_profiles.flow_placement import FlowPlace, with_place
from device_profiles.schema import Profile
from edge_runtime.backends.int8_cache import supported_kv
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.placed import PlacedBackend
from edge_runtime.backends.protocol import Backend
from edge_runtime.backends.providers import check_providers
from edge_runtime.backends.session_settings import SessionSettings
from edge_runtime.bundle import MANIFEST, Bundle, describe_errors
from edge_runtime.engines.cache import EngineCache
from edge_runtime.errors import (
    BackendError,
    BundleError,
    MemoryBudgetError,
    PrepareError,
    ProfileError,
    UsageError,
)
from edge_runtime.memory import malloc
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.memory.limits import MemorySettings
from edge_runtime.memory.oom_score import set_oom_score
from edge_runtime.npu.flow_loader import NpuFlowLoader
from edge_runtime.npu.open_runner import open_npu
from edge_runtime.placement import PlacementPlan, plan_placement
from edge_runtime.placement_report import PlacementReport
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_bundle import (
    OnPrepare,
    PreparedBundle,
    make_prepared,
    use_prepared,
)
from edge_runtime.requirements import require, shortfalls
from edge_runtime.resources import NOT_PREPARED, Resources
from edge_runtime.runtime_choice import RuntimeChoice, profile_choice
from edge_runtime.state_folder import state_folder
from edge_runtime.tune.tuned import find_tuned

HARD_VARIABLE = "BOARDVOICE_MEMORY_LIMIT"
SOFT_VARIABLE = "BOARDVOICE_MEMORY_SOFT"
# "keep" leaves glibc's allocator as it is.
MALLOC_VARIABLE = "BOARDVOICE_MALLOC"
_MIB = 1 << 20
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_LOG = logging.getLogger("boardvoice")


@dataclass(frozen=True)
class LoadOptions:
    """How to load a bundle.

    Attributes:
        profile: Device profile, its name or a file; None takes the one that fits this board.
        threads: Overrides the profile's thread count.
        verify: Check the SHA-256 of every file that is loaded from the bundle itself. Prepared
            files were made from verified ones and are checked by size and time.
        prepare: ``auto`` prepares a bundle at its first load, ``never`` runs it as it is; None
            takes the profile's word.
        memory_limit: Most bytes of anonymous memory; None takes environment or profile.
        memory_soft: Bytes above which what is not needed is given back; likewise.
        backend: Replaces ONNX Runtime's CPU provider.
        on_prepare: Told how far a preparation is.
        tuned: Run as `tune` found to be best on this device, unless threads are given or a
            profile is named that says how to run.
        runtime: How to run, whatever profile and tuning say.
        flow: Where the flow estimator runs, whatever the profile says; None takes its word.
    """

    profile: str | Profile | None = None
    threads: int | None = None
    verify: bool = True
    prepare: str | None = None
    memory_limit: int | None = None
    memory_soft: int | None = None
    backend: Backend | None = None
    on_prepare: OnPrepare | None = None
    tuned: bool = True
    runtime: RuntimeChoice | None = None
    flow: FlowPlace | None = None

    def __post_init__(self) -> None:
        threads = self.threads
        if threads is not None and (
            isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024
        ):
            raise UsageError(f"threads is {threads!r}.", remedy="It must be 1 to 1024.")
        if not isinstance(self.profile, (str, Profile, NoneType)):
            raise UsageError(
                f"profile is a {type(self.profile).__name__}.",
                remedy="Give a name, a file or a Profile.",
            )
        if self.prepare not in (None, "auto", "never"):
            raise UsageError(
                f"prepare is {self.prepare!r}.", remedy="It must be 'auto' or 'never'."
            )
        if self.flow not in (None, *get_args(FlowPlace)):
            raise UsageError(
                f"flow is {self.flow!r}.",
                remedy=f"It must be one of {', '.join(get_args(FlowPlace))}.",
            )
        for name in ("memory_limit", "memory_soft"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}.", remedy="It must be bytes, 1 or more.")


def open_device(bundle_folder: str | Path, options: LoadOptions) -> tuple[Bundle, Resources]:
    """Open a bundle and get the device ready for it.

    Raises:
        BundleError: Missing, torn or altered bundle.
        ProfileError: Unknown or wrong profile.
        MemoryBudgetError: A limit is overdrawn already.
    """
    if not isinstance(bundle_folder, (str, Path)) or not str(bundle_folder):
        raise UsageError(
            f"bundle is {bundle_folder!r}.", remedy="Give the path of a bundle folder."
        )
    profile = _with_flow(choose_profile(options.profile), options.flow)
    # Left to itself, glibc keeps ever larger freed blocks in the heap; see docs/decisions.md.
    if os.environ.get(MALLOC_VARIABLE) != "keep":
        malloc.fix_thresholds(malloc.MMAP_THRESHOLD)
    profile, kv_fallback = supported_kv(
        profile, options.backend or OrtBackend(threads=1, spinning=False)
    )
    guard = MemoryGuard(memory_settings(profile, options))
    notes = _killed_first(profile)
    bundle = Bundle.open(bundle_folder, verify=False)
    settings = SessionSettings.of(profile)
    key = PreparationKey.of(bundle, kv_dtype=profile.kv.dtype, settings=settings)
    runtime = _runtime(profile, options, key)
    if options.backend is not None:
        if options.verify:
            bundle.verify()
        return bundle, Resources(
            options.backend, profile, guard, not_prepared="another back end is used",
            kv_fallback=kv_fallback, runtime=runtime, notes=notes,
        )  # fmt: skip
    engines = engine_cache(profile)
    plan = place_graphs(profile, engines, guard)
    for note in plan.notes:
        _LOG.warning("%s", note)
    if not plan.only_cpu and profile.runtime.overlap_vae == "auto" and runtime.source != "tuned":
        # What shares one device gains nothing from two threads.
        runtime = replace(runtime, overlap_vae=False)
    reason, fallback, prepared = _not_wanted(bundle, profile, options), False, None
    if not reason:
        prepared = use_prepared(bundle, key, state_folder())
    make = not reason and prepared is None
    if options.verify or make:
        # What is mapped from prepared files was verified when they were made, whatever the
        # options were: later loads trust it without reading the originals.
        # An NPU's model is looked at where one is to be used: damaged, it leaves the CPU.
        bundle.verify(skip_graphs=prepared is not None, skip_npu=True)
    if make:
        check_description(bundle, profile)
        prepared, reason = _prepare(bundle, key, guard, runtime.threads, options.on_prepare)
        fallback = prepared is None
    cpu = OrtBackend(
        runtime.threads,
        spinning=runtime.spinning,
        prepared=prepared.folder if prepared is not None else None,
        settings=settings,
    )
    backend = placed_backend(
        cpu, plan, profile, bundle, engines, guard, verify_npu=options.verify
    )
    costs = prepared.info.costs if prepared is not None else {}
    return bundle, Resources(
        backend, profile, guard, costs, reason, fallback,
        kv_fallback=kv_fallback, runtime=runtime, notes=(*notes, *plan.notes),
        prepared=prepared, plain=replace(cpu, prepared=None), placement=backend.report,
        on_device=lambda graph: bool(plan.chain(graph)),
    )  # fmt: skip


def place_graphs(
    profile: Profile, engines: EngineCache, guard: MemoryGuard | None = None
) -> PlacementPlan:
    """Which providers work here, and so which graph may run where.

    Raises:
        ProfileError: Python or ONNX Runtime is older than the profile needs.
        BackendError: Even the CPU computes wrong numbers.
    """
    missing = shortfalls(profile)
    require(profile, missing)
    checks = check_providers(profile, engines=engines, guard=guard)
    if not checks[-1].passed:
        raise BackendError(
            f"ONNX Runtime's CPU provider cannot be used: {checks[-1].reason}.",
            remedy="Install another version of onnxruntime.",
        )
    return plan_placement(profile, checks, missing)


def _killed_first(profile: Profile) -> tuple[str, ...]:
    if profile.memory.oom_score_adj is None:
        return ()
    reason = set_oom_score(profile.memory.oom_score_adj)
    if reason:
        _LOG.warning("%s", reason)
    return (reason,) if reason else ()


def _with_flow(profile: Profile, place: FlowPlace | None) -> Profile:
    if place is None:
        return profile
    return profile.model_copy(update={"flow": with_place(profile.flow, place)})


def placed_backend(
    cpu: OrtBackend,
    plan: PlacementPlan,
    profile: Profile,
    bundle: Bundle,
    engines: EngineCache,
    guard: MemoryGuard,
    *,
    verify_npu: bool = True,
) -> PlacedBackend:
    """The back end that follows a plan.

    Raises:
        BundleError: The manifest's description is wrong.
    """
    probes, ranges = ({}, {}) if plan.only_cpu else _inputs(bundle, profile)
    report = PlacementReport()
    npu = None
    if plan.npu is not None:
        soc = detect().soc if plan.npu == "rknn" else ""
        npu = NpuFlowLoader(
            plan.npu, bundle, profile.flow, guard, report, open_npu, profile.requires, soc,
            verify_npu,
        )
    return PlacedBackend(
        cpu, plan, profile, bundle, report, probes, ranges, engines, guard, npu
    )


def engine_cache(profile: Profile) -> EngineCache:
    """Where TensorRT's engines lie; the board is looked at only where some may be built."""
    wanted = any(entry.name == "tensorrt" for entry in profile.providers)
    return EngineCache.here(state_folder()) if wanted else EngineCache(state_folder())


def family_module(bundle: Bundle) -> ModuleType:
    """The runtime package of a bundle's family.

    Raises:
        BundleError: This version knows no such family.
    """
    name = f"edge_runtime.{bundle.manifest.family}"
    module = importlib.import_module(name) if importlib.util.find_spec(name) else None
    # Other parts of the package are no families, even where one has a module called "load".
    if module is None or not callable(getattr(module, "load", None)):
        raise BundleError(
            f"{bundle.folder / MANIFEST}: this version knows no model family "
            f"{bundle.manifest.family!r}.",
            remedy="Update boardvoice.",
        )
    return module


def check_description(bundle: Bundle, profile: Profile) -> None:
    """Refuse a bundle that does not describe what its family runs, before anything is made of it.

    Raises:
        BundleError: The description is wrong, or a graph is missing.
    """
    probes, _ = _inputs(bundle, profile)
    files = bundle.graphs(profile.kv.dtype)
    for graph in probes:
        if graph not in files:
            bundle.path(f"graphs/{graph}.onnx")


def choose_profile(profile: str | Profile | None) -> Profile:
    """A profile by name or by file, or the one that fits this board.

    Raises:
        ProfileError: Unknown or wrong.
    """
    if isinstance(profile, Profile):
        return profile
    try:
        return load_profile(profile)
    except ProfileLoadError as error:
        raise ProfileError(f"{error}.") from error


def usable_profile(profile: str | Profile | None) -> Profile:
    """A profile as a bundle is loaded with it here: what ONNX Runtime cannot do is replaced.

    Raises:
        ProfileError: Unknown or wrong.
    """
    return supported_kv(choose_profile(profile), OrtBackend(threads=1, spinning=False))[0]


def memory_settings(profile: Profile, options: LoadOptions) -> MemorySettings:
    """Limits as options, environment and profile have them, in that order.

    Raises:
        UsageError: A value in the environment that is no size.
    """
    section = profile.memory
    hard = options.memory_limit or _from_environment(HARD_VARIABLE)
    soft = options.memory_soft or _from_environment(SOFT_VARIABLE)
    return MemorySettings(
        hard_bytes=hard or (section.hard_mib * _MIB if section.hard_mib else None),
        soft_bytes=soft or (section.soft_mib * _MIB if section.soft_mib else None),
        reserve_bytes=section.reserve_mib * _MIB,
    )


def parse_size(text: str) -> int:
    """Bytes of a size such as ``800M``, ``1.5G``, ``512MiB`` or ``1073741824``.

    Raises:
        ValueError: Not a size.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    count = float(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= count < 2**62:
        raise ValueError(f"{text!r} is no size; write 800M or 1.5G")
    return int(count)


def _inputs(bundle: Bundle, profile: Profile) -> tuple[Any, Any]:
    """Inputs to try graphs with, and ranges of their shapes."""
    family, model = family_module(bundle), bundle.manifest.model
    try:
        return family.probes(model, profile.kv.dtype), family.shape_ranges(model)
    except ValidationError as error:
        raise BundleError(
            f"{bundle.folder / MANIFEST}: model: {describe_errors(error)}.",
            remedy="Export it again.",
        ) from error


def _not_wanted(bundle: Bundle, profile: Profile, options: LoadOptions) -> str:
    """Why the bundle is to run without prepared weights; empty if it is to have them."""
    if (options.prepare or profile.memory.prepare) == "never":
        return "preparing is switched off"
    weights = sum(
        entry.size for name, entry in bundle.manifest.files.items() if name.endswith(".weights")
    )
    if options.prepare is None and weights < profile.memory.prepare_from_mib * _MIB:
        return f"its weights take less than {profile.memory.prepare_from_mib} MiB"
    return ""


def _prepare(
    bundle: Bundle,
    key: PreparationKey,
    guard: MemoryGuard,
    threads: int,
    progress: OnPrepare | None,
) -> tuple[PreparedBundle | None, str]:
    """Prepare a verified bundle; else None and why it could not be done."""
    try:
        made = make_prepared(bundle, key, state_folder(), guard, threads=threads, progress=progress)
        # Held from here on; and where somebody was quicker to remove it, it runs all the same.
        return use_prepared(bundle, key, state_folder()) or made, ""
    except (PrepareError, MemoryBudgetError) as error:
        reason = f"{error.message} {error.remedy}".strip()
        _LOG.warning("%s%s", NOT_PREPARED, reason)
        return None, reason


def _runtime(profile: Profile, options: LoadOptions, key: PreparationKey) -> RuntimeChoice:
    """Options first, then a profile that was named, then what tuning found, then the profile."""
    if options.runtime is not None:
        return options.runtime.usable()
    named = options.profile is not None and profile.runtime.model_fields_set
    own_words = options.threads is not None or options.backend is not None or named
    if options.tuned and not own_words:
        tuned = find_tuned(key, state_folder())
        if tuned is not None:
            return tuned.choice.choice().usable()
    choice = profile_choice(profile, options.threads)
    if options.backend is not None and profile.runtime.overlap_vae == "auto":
        # Another back end's graphs may share one device, and need not run in two threads.
        return replace(choice, overlap_vae=False)
    return choice


def _from_environment(name: str) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}.") from error
