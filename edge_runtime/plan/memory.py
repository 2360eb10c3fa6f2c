"""Memory of a bundle on a board not at hand: the runtime's own plan, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from device_profiles.combinations import npu_target
from device_profiles.schema import Profile
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.bundle import MANIFEST, Bundle, graph_name, sha256_of
from edge_runtime.memory.report import MemoryRow, planned_rows
from edge_runtime.npu.flow_entry import NpuFlowEntry
from edge_runtime.prepare.prepared_info import INFO, GraphCost, PreparedInfo, Workspace
from edge_runtime.resources import Resources

_MIB, _GIB = 1 << 20, 1 << 30
# Of a board's memory, what kernel and firmware keep: MemTotal falls short by 4 to 10 %
# (tests/boards/trees). On top, a system without a desktop: an assumption.
_KERNEL_SHARE = 0.10
_SYSTEM_BYTES = 300 * _MIB
# What loading a prepared graph takes, where it was not measured.
_SESSION_BYTES = 4 * _MIB
# Python with ONNX Runtime, before a bundle is opened; `boardvoice memory` shows it.
BASELINE_BYTES = 48 * _MIB
_SIZES_GIB = (1, 2, 4, 8, 16, 32, 64, 128)

Verdict = Literal["fits", "rereads", "refused", "unknown"]


@dataclass(frozen=True)
class Costs:
    """What graphs take, and who says so.

    Attributes:
        by_graph: Measured costs; empty where there are none.
        source: Where they are from.
    """

    by_graph: Mapping[str, GraphCost]
    source: str


@dataclass(frozen=True)
class MemoryPlan:
    """Memory by part against a board's.

    Attributes:
        rows: Parts, in bytes.
        anonymous_bytes: Memory that the kernel cannot drop.
        mapped_bytes: Weights mapped from files, all of which every patch reads.
        needed_gib: Smallest usual size of memory that holds both; None for none.
        board_bytes: Memory of the board, if known.
        left_bytes: What of it speech may take: less kernel, system and the profile's reserve.
        hard_bytes: The profile's limit of anonymous memory, if it has one.
        verdict: ``fits``; ``rereads``: it runs, but weights are read from storage again and again;
            ``refused``; or ``unknown``, where the board's memory is.
        disk_bytes: The bundle and its prepared files.
        source: Where the figures of sessions and scratch memory are from.
    """

    rows: tuple[MemoryRow, ...]
    anonymous_bytes: int
    mapped_bytes: int
    needed_gib: int | None
    board_bytes: int | None
    left_bytes: int | None
    hard_bytes: int | None
    verdict: Verdict
    disk_bytes: int
    source: str


def measured_costs(bundle: Bundle, kv_dtype: str, state: Path) -> Costs:
    """Costs that this machine measured when it prepared the bundle.

    Args:
        bundle: A bundle.
        kv_dtype: Storage of keys and values.
        state: State folder.
    """
    digest = sha256_of(bundle.folder / MANIFEST)
    for file in sorted(state.glob(f"prepared/{digest[:16]}-*/{INFO}")):
        try:
            info = PreparedInfo.model_validate_json(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeError, ValidationError):
            # Half-made or another version's; its own load deals with it.
            continue
        if info.bundle == digest and info.kv_dtype == kv_dtype and info.costs:
            return Costs(info.costs, f"measured on this machine when prepared ({info.runtime})")
    return Costs({}, "estimated from the model's sizes; 'boardvoice prepare' here measures them")


def plan_memory(
    bundle: Bundle,
    profile: Profile,
    graphs: tuple[str, ...],
    kv_bytes: int,
    costs: Costs,
    workspaces: dict[str, tuple[Workspace, ...]],
    board_bytes: int | None,
) -> MemoryPlan:
    """Plan it.

    Args:
        bundle: A bundle.
        profile: The board's.
        graphs: Graphs that are loaded.
        kv_bytes: Bytes of the KV cache.
        costs: What was measured.
        workspaces: Scratch memory by graph, where nothing was measured.
        board_bytes: Memory of the board; None takes the profile's, if it says.
    """
    files = bundle.manifest.files
    weights = sum(entry.size for name, entry in files.items() if name.endswith(".weights"))
    prepared = (
        profile.memory.prepare != "never" and weights >= profile.memory.prepare_from_mib * _MIB
    )
    by_graph = dict(costs.by_graph) if prepared else {}
    if prepared and not by_graph:
        for file in bundle.graphs(profile.kv.dtype).values():
            name = graph_name(file)
            spaces = workspaces.get(name, (Workspace(size=1, bytes=_SESSION_BYTES),))
            by_graph[name] = GraphCost(session_bytes=_SESSION_BYTES, workspaces=spaces)
    resources = Resources(
        backend=OrtBackend(threads=1, spinning=False), profile=profile,
        costs=by_graph, estimates=dict(workspaces),
    )  # fmt: skip
    rows = planned_rows(bundle, resources, graphs, baseline=BASELINE_BYTES, kv_bytes=kv_bytes)
    kept = (profile.kv.pool_mib + profile.kv.kept_voices_mib) * _MIB
    rows.append(MemoryRow("kept between requests, at most", 0, kept, None))
    model = npu_model(bundle, profile)
    npu_bytes = model.memory_bytes if model is not None else 0
    if npu_bytes:
        # Of the board's memory, but not of this process's.
        rows.append(MemoryRow("flow in the NPU's memory", 0, npu_bytes, None))
    anonymous, mapped = (sum(getattr(row, name) for row in rows)
                         for name in ("planned", "file_backed"))  # fmt: skip
    if board_bytes is None and profile.figures.memory_gib is not None:
        board_bytes = int(profile.figures.memory_gib.value * _GIB)
    hard = profile.memory.hard_mib * _MIB if profile.memory.hard_mib else None
    left = None if board_bytes is None else left_of(board_bytes, profile)
    return MemoryPlan(
        rows=tuple(rows),
        anonymous_bytes=anonymous,
        mapped_bytes=mapped,
        needed_gib=next(
            (size for size in _SIZES_GIB if left_of(size * _GIB, profile) >= anonymous + mapped),
            None,
        ),
        board_bytes=board_bytes,
        left_bytes=left,
        hard_bytes=hard,
        verdict=_verdict(anonymous, npu_bytes, mapped, left, hard),
        disk_bytes=sum(entry.size for entry in files.values()) + (2 * weights if prepared else 0),
        source=costs.source,
    )


def left_of(board_bytes: int, profile: Profile) -> int:
    """Bytes of a board's memory that speech may take."""
    reserve = profile.memory.reserve_mib * _MIB
    return max(int(board_bytes * (1 - _KERNEL_SHARE)) - _SYSTEM_BYTES - reserve, 0)


def npu_model(bundle: Bundle, profile: Profile) -> NpuFlowEntry | None:
    """The bundle's model for a board's NPU; None where there is none or it is not wanted."""
    model = NpuFlowEntry.of(bundle) if profile.flow.place == "rknn" else None
    target = npu_target(profile.soc)
    return model if model is not None and model.target == target else None


def _verdict(
    anonymous: int, npu: int, mapped: int, left: int | None, hard: int | None
) -> Verdict:
    if hard is not None and anonymous - npu > hard:
        return "refused"
    if left is None:
        return "unknown"
    if anonymous > left:
        return "refused"
    return "fits" if anonymous + mapped <= left else "rereads"
