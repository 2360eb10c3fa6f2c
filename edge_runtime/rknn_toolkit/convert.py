"""ONNX to ``.rknn``: the toolkit's process, its compiler's table, the cache."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from edge_runtime.bundle import sha256_of
from edge_runtime.errors import MemoryBudgetError
from edge_runtime.memory.limits import available_memory
from edge_runtime.npu.rknn_file import RknnFile, holds_text
from edge_runtime.rknn_toolkit.conversions import (
    DATASET,
    LOG,
    MODEL,
    ConversionCache,
    ConversionRecord,
    ConversionSource,
    NpuPrecision,
)
from edge_runtime.rknn_toolkit.environment import ToolkitEnvironment
from edge_runtime.rknn_toolkit.operator_table import OperatorTable
from edge_runtime.rknn_toolkit.toolkit_error import ToolkitError
from edge_runtime.rknn_toolkit.worker import OnStep, ToolkitWorker

# 832 MB of weights took 5.6 GB with toolkit 2.5.0.
_MEMORY_FACTOR, _MEMORY_BASE = 6.5, 700 << 20
_ASK_LIMIT_S = 120.0


@dataclass(frozen=True)
class ConversionOptions:
    """How a graph is converted.

    Attributes:
        target: Chip, such as ``rk3588``.
        precision: ``f16``, or ``int8`` with layers that lose too much left in f16.
        on_cpu: Values that the NPU may leave to the CPU: reshapes at the inputs and outputs.
        limit_s: Longest that it may take.
        log: Takes the toolkit's output when it fails.
    """

    target: str
    precision: NpuPrecision = "f16"
    on_cpu: Collection[str] = ()
    limit_s: float = 3600.0
    log: Path | None = None


def convert(
    source: ConversionSource,
    options: ConversionOptions,
    cache: ConversionCache,
    on_step: OnStep | None = None,
) -> tuple[Path, ConversionRecord]:
    """Convert a graph, unless it was converted before.

    Args:
        source: The graph, in a scratch folder of the cache.
        options: How.
        cache: Takes the result.
        on_step: Told of each step.

    Returns:
        The model and what is known of it.

    Raises:
        ToolkitError: The toolkit is missing, refused, took too long or died; or it leaves
            operators to the CPU.
        MemoryBudgetError: It would need more memory than there is.
    """
    environment = ToolkitEnvironment.find()
    log = source.folder / LOG
    with ToolkitWorker(environment.python, log) as worker:
        toolkit = str(worker.ask("versions", _ASK_LIMIT_S)["rknn-toolkit2"])
        found = cache.find(source, options.target, options.precision, toolkit)
        if found is not None:
            return found
        _check_memory(source)
        try:
            record = _convert(worker, source, options, toolkit, on_step)
        except ToolkitError as error:
            worker.close()
            raise _with_log(error, log, options.log) from error
    return cache.keep(source, record), record


def _convert(
    worker: ToolkitWorker,
    source: ConversionSource,
    options: ConversionOptions,
    toolkit: str,
    on_step: OnStep | None,
) -> ConversionRecord:
    model = source.folder / MODEL
    arguments = model_arguments(source, options.target, options.precision)
    worker.ask("convert", options.limit_s, on_step, {"rknn": str(model), **arguments})
    table = OperatorTable.parse(worker.log.read_text("utf-8", "replace"))
    if not table.operators:
        raise ToolkitError(
            f"rknn-toolkit2 {toolkit} printed no table of operators that could be read.",
            reason="operators", remedy="Install the version that 'boardvoice rknn install' takes.",
        )  # fmt: skip
    left = [row.name for row in table.on_cpu]
    strange = [name for name in left if name.partition(":")[2] not in options.on_cpu]
    if strange:
        raise ToolkitError(
            f"rknn-toolkit2 {toolkit} leaves {len(strange)} operators to the CPU: "
            f"{', '.join(strange[:5])}{' …' if len(strange) > 5 else ''}.", reason="operators",
            remedy="Each costs a way there and back; report this with the log.",
        )  # fmt: skip
    read = RknnFile.read(model)
    if read is None or options.target not in read.targets or not holds_text(model, source.sha256):
        raise ToolkitError(
            f"rknn-toolkit2 {toolkit} wrote a model that is not what was asked for.",
            reason="files",
        )
    return ConversionRecord(
        source_sha256=source.sha256,
        target=options.target,
        precision=options.precision,
        toolkit=toolkit,
        size=read.size,
        sha256=sha256_of(model),
        operators=len(table.operators),
        cpu_operators=tuple(left),
        cycles=table.cycles,
        memory_bytes=table.internal_bytes + table.weight_bytes,
    )


def model_arguments(
    source: ConversionSource, target: str, precision: NpuPrecision
) -> dict[str, str]:
    """What the worker takes to build a graph.

    Raises:
        ToolkitError: int8 without recorded inputs.
    """
    found = {"onnx": str(source.graph), "target": target, "mark": source.sha256}
    if precision == "int8":
        found["dataset"] = str(_dataset(source))
    return found


def _dataset(source: ConversionSource) -> Path:
    """The list of recorded inputs, one run per line, as the toolkit reads it."""
    runs = sorted(source.calibration.glob("*.x.npy"))
    if not runs:
        raise ToolkitError("int8 needs recorded inputs, and there are none.", reason="files")
    listed = source.folder / DATASET
    lines = [f"{run} {run.with_name(run.name.replace('.x.', '.prefix.'))}" for run in runs]
    listed.write_text("\n".join(lines) + "\n")
    return listed


def _check_memory(source: ConversionSource) -> None:
    needed = int(source.weight_bytes * _MEMORY_FACTOR) + _MEMORY_BASE
    available = available_memory()
    if available and needed > available:
        raise MemoryBudgetError(
            f"Converting for the NPU needs about {needed >> 20} MiB, {available >> 20} are "
            "available.",
            remedy="End other programs, use a larger machine, or export with --no-npu.",
            needed=needed, available=available, limited_by="MemAvailable",
        )  # fmt: skip


def _with_log(error: ToolkitError, log: Path, kept: Path | None) -> ToolkitError:
    """The error with a log that outlives the scratch folder."""
    if kept is None:
        return error
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(log.read_bytes())
    except OSError:
        return error
    remedy = error.remedy.replace(str(log), str(kept))
    if str(kept) not in remedy:
        remedy = f"{remedy} Its log is {kept}.".strip()
    return ToolkitError(error.message, reason=error.reason, remedy=remedy)
