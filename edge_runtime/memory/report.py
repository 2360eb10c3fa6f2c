"""Where every megabyte goes: planned beside measured."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from edge_runtime.bundle import Bundle
from edge_runtime.memory.limits import Limit
from edge_runtime.resources import Resources, weight_bytes


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
    """

    rows: tuple[MemoryRow, ...]
    total: MemoryRow
    kv_dtype: str
    kv_row_bytes: int
    kv_bucket_bytes: int
    prepared: bool
    not_prepared: str
    limits: tuple[Limit, ...]

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
    prepared = bool(resources.costs)
    rows = [MemoryRow("Python and libraries", 0, baseline, baseline)]
    held, brief = 0, 0
    for graph, name in sorted(bundle.graphs(resources.profile.kv.dtype).items()):
        if graph not in resources.measured:
            continue
        cost = resources.cost(bundle, name)
        held += cost.least_bytes
        # Larger runs give theirs back before the next one.
        brief = max(brief, cost.most_bytes - cost.least_bytes)
        mapped = weight_bytes(bundle, name) if prepared else 0
        rows.append(
            MemoryRow(f"session {graph}", mapped, cost.session_bytes, resources.measured[graph])
        )
    rows.append(MemoryRow("KV cache", 0, kv_bytes, kv_bytes))
    known = sum(row.measured or 0 for row in rows)
    rows.append(MemoryRow("workspace and buffers", 0, held + brief, max(peak - known, 0)))
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
    )
