"""Where every megabyte goes: planned beside measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from edge_runtime.bundle import Bundle
from edge_runtime.memory.limits import Limit
from edge_runtime.resources import Resources, weight_bytes

_PYTHON, _KV, _WORKSPACE = "Python and libraries", "KV cache", "workspace and buffers"
_SESSION = "session "


@dataclass(frozen=True)
class MemoryRow:
    """One line of the report, in bytes.

    Attributes:
        name: What it is.
        file_backed: Mapped from files; the kernel can drop it.
        planned: Anonymous memory expected.
        measured: Anonymous memory found; None where it cannot be told apart.
    """

    name: str
    file_backed: int
    planned: int
    measured: int | None


@dataclass(frozen=True)
class MemoryReport:
    """All lines, with the limits they stand against.

    Attributes:
        rows: Parts.
        total: Their sum; measured is the peak of the whole process.
        kv_dtype: Storage of keys and values.
        kv_row_bytes: Bytes of one KV row.
        kv_bucket_bytes: Bytes of one bucket of rows.
        prepared: Whether packed weights are mapped from prepared files.
        not_prepared: Why not.
        limits: Limits in force, tightest first.
        npu_bytes: What the NPU holds besides, outside of this process.
    """

    rows: tuple[MemoryRow, ...]
    total: MemoryRow
    kv_dtype: str
    kv_row_bytes: int
    kv_bucket_bytes: int
    prepared: bool
    not_prepared: str
    limits: tuple[Limit, ...]
    npu_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def memory_report(
    bundle: Bundle,
    resources: Resources,
    *,
    baseline: int,
    peak: int,
    kv_bytes: int,
    kv_row_bytes: int,
    limits: list[Limit],
) -> MemoryReport:
    """Put the lines together after a run.

    Args:
        bundle: The bundle that ran.
        resources: The device, with what loading took.
        baseline: Anonymous bytes before the bundle was opened (Python and libraries).
        peak: Largest anonymous memory of the run.
        kv_bytes: KV that the run held.
        kv_row_bytes: Bytes of one KV row.
        limits: Limits in force.
    """
    prepared, npu = bool(resources.costs), resources.placement.npu
    rows = [
        replace(row, measured=_measured(row, resources, baseline, kv_bytes))
        for row in planned_rows(
            bundle, resources, resources.measured, baseline=baseline, kv_bytes=kv_bytes
        )
    ]
    workspace = rows.pop()
    known = sum(row.measured or 0 for row in rows)
    rows.append(replace(workspace, measured=max(peak - known, 0)))
    total = MemoryRow(
        "all",
        sum(row.file_backed for row in rows),
        sum(row.planned for row in rows),
        peak,
    )
    return MemoryReport(
        rows=tuple(rows),
        total=total,
        kv_dtype=resources.profile.kv.dtype,
        kv_row_bytes=kv_row_bytes,
        kv_bucket_bytes=kv_row_bytes * resources.profile.kv.bucket_rows,
        prepared=prepared,
        not_prepared=resources.not_prepared,
        limits=tuple(limits),
        npu_bytes=npu.memory_bytes if npu is not None and npu.in_use else 0,
    )


def planned_rows(
    bundle: Bundle,
    resources: Resources,
    graphs: Collection[str],
    *,
    baseline: int,
    kv_bytes: int,
) -> list[MemoryRow]:
    """What is expected by part: Python, sessions, KV cache, and scratch memory as the last.

    Args:
        bundle: A bundle.
        resources: The device, with what its graphs cost.
        graphs: Names of the graphs that are loaded.
        baseline: Anonymous bytes before the bundle is opened.
        kv_bytes: KV that a run holds.
    """
    prepared = bool(resources.costs)
    rows = [MemoryRow(_PYTHON, 0, baseline, None)]
    held, brief = 0, 0
    for graph, name in sorted(bundle.graphs(resources.profile.kv.dtype).items()):
        if graph not in graphs:
            continue
        cost = resources.cost(bundle, name)
        held += cost.least_bytes
        # Larger runs give theirs back before the next one.
        brief = max(brief, cost.most_bytes - cost.least_bytes)
        mapped = weight_bytes(bundle, name) if prepared else 0
        rows.append(MemoryRow(f"{_SESSION}{graph}", mapped, cost.session_bytes, None))
    rows.append(MemoryRow(_KV, 0, kv_bytes, None))
    rows.append(MemoryRow(_WORKSPACE, 0, held + brief, None))
    return rows


def _measured(row: MemoryRow, resources: Resources, baseline: int, kv_bytes: int) -> int | None:
    if row.name.startswith(_SESSION):
        return resources.measured[row.name.removeprefix(_SESSION)]
    return {_PYTHON: baseline, _KV: kv_bytes}.get(row.name)
