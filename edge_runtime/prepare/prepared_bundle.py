"""A prepared bundle on disk: found, checked, or made by a worker process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edge_runtime.atomic import atomic_file, atomic_folder, remove_stale
from edge_runtime.bundle import Bundle, sha256_of
from edge_runtime.errors import PrepareError
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.prepare.folder_use import FolderUse
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_info import INFO, GraphCost, PreparedFile, PreparedInfo
from edge_runtime.prepare.pruning import is_bundle, prune_for_room, prune_old

FOLDER = "prepared"
_MIB = 1 << 20
# A session holds every weight twice for a moment at most: packed, and the piece being packed.
_PACKING_BYTES = 256 * _MIB
# The optimized graph keeps plain weights beside the packed ones.
_DISK_FACTOR = 2.1
# Left to others: a full disk breaks more than this program.
_DISK_SPARE = 64 * _MIB

# The worker imports from where this process does, wherever that is, and not from its own folder.
_START = """
import sys
sys.path[:] = sys.argv[1:]
from edge_runtime.prepare.worker import main
sys.exit(main())
"""

# Told the graph being prepared, how many are done, and how many there are.
OnPrepare = Callable[[str, int, int], None]


class GraphReport(BaseModel):
    """One line that the worker writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    graph: str
    cost: GraphCost


@dataclass(frozen=True)
class PreparedBundle:
    """Prepared files that fit this device.

    Attributes:
        folder: Where they lie.
        info: What is known of them.
        use: Keeps others from removing them, for as long as it exists.
    """

    folder: Path
    info: PreparedInfo
    use: FolderUse | None = None

    def damaged(self) -> list[str]:
        """Files whose SHA-256 is not what it was when they were made."""
        return [
            name
            for name, entry in self.info.files.items()
            if sha256_of(self.folder / name) != entry.sha256
        ]

    def discard(self) -> bool:
        """Have them made again at the next load; returns whether that could be noted."""
        try:
            (self.folder / INFO).unlink(missing_ok=True)
        except OSError:
            return False
        return True


def use_prepared(bundle: Bundle, key: PreparationKey, state: Path) -> PreparedBundle | None:
    """Like `find_prepared`, but to run them: held, and marked as used now."""
    folder = state / FOLDER / key.folder_name
    for _ in range(3):
        use = FolderUse.shared(folder)
        found = find_prepared(bundle, key, state)
        if found is None:
            return None
        # Made again in between: then it is another folder that is held.
        if use is None or use.is_of(folder):
            _mark_used(found, bundle)
            return replace(found, use=use)
    return found


def find_prepared(bundle: Bundle, key: PreparationKey, state: Path) -> PreparedBundle | None:
    """The prepared files for a bundle, if they are there, whole and untouched."""
    folder = state / FOLDER / key.folder_name
    try:
        info = PreparedInfo.model_validate_json((folder / INFO).read_bytes())
    except (OSError, ValidationError):
        return None
    if (info.bundle, info.cpu, info.runtime, info.kv_dtype, info.settings, info.layout) != (
        key.bundle, key.cpu, key.runtime, key.kv_dtype, key.settings.words, key.layout,
    ):  # fmt: skip
        return None
    for name, entry in info.files.items():
        try:
            found = (folder / name).stat()
        except OSError:
            return None
        if (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns):
            return None
    return PreparedBundle(folder, info)


def make_prepared(
    bundle: Bundle,
    key: PreparationKey,
    state: Path,
    guard: MemoryGuard,
    *,
    threads: int,
    progress: OnPrepare | None = None,
    again: bool = False,
) -> PreparedBundle:
    """Prepare a bundle in a process of its own and put the files in place.

    One process at a time does it: what another one made meanwhile is taken, unless ``again``.

    Raises:
        PrepareError: The state folder cannot be written, the disk is too small, or the worker
            failed.
        MemoryBudgetError: Packing the largest graph does not fit.
    """
    graphs = {name: bundle.path(file) for name, file in bundle.graphs(key.kv_dtype).items()}
    weights = {
        name: bundle.manifest.files[f"graphs/{name}.weights"].size
        for name in graphs
        if f"graphs/{name}.weights" in bundle.manifest.files
    }
    parent = state / FOLDER
    target = parent / key.folder_name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with _alone(parent / f".{key.bundle_prefix}.lock"):
            if not again and (found := find_prepared(bundle, key, state)) is not None:
                return found
            needed = max(weights.values(), default=0) + _PACKING_BYTES
            guard.reserve(needed, "Preparing the bundle")
            _drop_leftovers(parent, key)
            room = int(sum(weights.values()) * _DISK_FACTOR)
            prune_for_room(parent, key, lambda: _is_room(parent, room))
            _check_disk(parent, room)
            with atomic_folder(target, replace=True) as part:
                costs = _run_worker(bundle, key, graphs, part, threads, progress)
                info = PreparedInfo(
                    bundle=key.bundle,
                    cpu=key.cpu,
                    runtime=key.runtime,
                    kv_dtype=key.kv_dtype,
                    settings=key.settings.words,
                    layout=key.layout,
                    source=_place(bundle),
                    files={file.name: _describe(file) for file in sorted(part.iterdir())},
                    costs=costs,
                )
                (part / INFO).write_text(info.model_dump_json(indent=2) + "\n", encoding="utf-8")
            prune_old(parent, key)
    except OSError as error:
        raise PrepareError(
            f"The bundle cannot be prepared in {parent}: {error.strerror or error}.",
            remedy="Make the state folder writable, or name another with BOARDVOICE_STATE.",
        ) from error
    return PreparedBundle(target, info)


def _run_worker(
    bundle: Bundle,
    key: PreparationKey,
    graphs: Mapping[str, Path],
    part: Path,
    threads: int,
    progress: OnPrepare | None,
) -> dict[str, GraphCost]:
    request = {
        "family": bundle.manifest.family,
        "model": bundle.manifest.model,
        "kv_dtype": key.kv_dtype,
        "graphs": {name: str(path.resolve()) for name, path in graphs.items()},
        "out": str(part.resolve()),
        "threads": threads,
        "settings": asdict(key.settings),
    }
    command = [sys.executable, "-c", _START, *sys.path]
    # Its errors go to a file: a pipe that nobody reads yet would stop it when full.
    with (
        tempfile.TemporaryFile(dir=part) as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        costs: dict[str, GraphCost] = {}
        try:
            # It may be dead before it has read the request; its exit status tells.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(request))
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            for line in process.stdout:
                # Only lines that are reports: libraries print there as well.
                with contextlib.suppress(ValidationError):
                    report = GraphReport.model_validate_json(line)
                    costs[report.graph] = report.cost
                    if progress is not None:
                        progress(report.graph, len(costs), len(graphs))
        except BaseException:
            process.kill()
            raise
        process.wait()
        errors.seek(0)
        lines = errors.read().decode("utf-8", errors="replace").strip().splitlines()
    if process.returncode or set(costs) != set(graphs):
        last = lines[-1] if lines else f"exit status {process.returncode}"
        raise PrepareError(
            f"The worker that prepares the bundle failed: {last}.",
            remedy="It runs unprepared; free memory and disk space, and load it again.",
        )
    return costs


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Wait until no other process is in this block; the kernel ends it with its process."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _describe(file: Path) -> PreparedFile:
    found = file.stat()
    return PreparedFile(size=found.st_size, mtime_ns=found.st_mtime_ns, sha256=sha256_of(file))


def _mark_used(prepared: PreparedBundle, bundle: Bundle) -> None:
    """Note when they were used; and where the bundle is now, unless it is still where it was."""
    file, info = prepared.folder / INFO, prepared.info
    # The folder may be shared and not ours to write.
    with contextlib.suppress(OSError):
        os.utime(file)
        if info.source != _place(bundle) and not is_bundle(Path(info.source), info.bundle):
            moved = info.model_copy(update={"source": _place(bundle)})
            with atomic_file(file) as stream:
                stream.write(moved.model_dump_json(indent=2).encode() + b"\n")


def _place(bundle: Bundle) -> str:
    return os.path.realpath(bundle.folder)


def _is_room(folder: Path, needed: int) -> bool:
    return shutil.disk_usage(folder).free >= needed + _DISK_SPARE


def _check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if not _is_room(folder, needed):
        raise PrepareError(
            f"Preparing the bundle needs {-(-(needed + _DISK_SPARE) // _MIB)} MiB in {folder}, "
            f"{_DISK_SPARE // _MIB} of them to stay free; {free // _MIB} MiB are free.",
            remedy="Free space, or name another state folder with BOARDVOICE_STATE.",
        )


def _drop_leftovers(parent: Path, key: PreparationKey) -> None:
    """Remove what killed preparations of this bundle left, whatever they were for."""
    for leftover in parent.glob(f".{key.bundle_prefix}-*"):
        remove_stale(parent / leftover.name[1:].partition(".")[0])
