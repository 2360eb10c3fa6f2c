"""Models that were converted on this machine, found again by what they were made from.

Each entry keeps the ONNX graph too: a converted model cannot be simulated, its graph can.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from edge_runtime.atomic import atomic_file, atomic_folder, remove_folder
from edge_runtime.bundle import sha256_of
from edge_runtime.errors import OutputError
from edge_runtime.state_folder import state_folder

NpuPrecision = Literal["f16", "int8"]

GRAPH, WEIGHTS, CALIBRATION = "source.onnx", "source.weights", "calibration"
MODEL, RECORD, LOG = "model.rknn", "conversion.json", "conversion.log"
DATASET = "conversion.txt"
_FORMAT = 1
# One at the real sizes is 1.3 GB; the oldest go.
_MOST_KEPT = 4


class ConversionRecord(BaseModel):
    """What a conversion was made from, and what came out.

    Attributes:
        format: Version of this layout.
        source_sha256: Of the graph and its weights.
        target: Chip.
        precision: Arithmetic.
        toolkit: Version of rknn-toolkit2.
        size: Bytes of the model.
        sha256: Of the model.
        operators: Operators of the compiler's table.
        cpu_operators: Those that the NPU does not compute.
        cycles: Cycles of one evaluation by that table.
        memory_bytes: NPU memory, weights and what lies between operators.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    source_sha256: str
    target: str
    precision: NpuPrecision
    toolkit: str
    size: int
    sha256: str
    operators: int
    cpu_operators: tuple[str, ...]
    cycles: int
    memory_bytes: int


@dataclass(frozen=True)
class ConversionSource:
    """An ONNX graph to convert, in a folder of the cache.

    Attributes:
        folder: Holds the graph, its weights, and the calibration inputs if there are any.
        sha256: Of all of that.
    """

    folder: Path
    sha256: str

    @staticmethod
    def of(folder: Path) -> ConversionSource:
        """Hash what lies in a folder."""
        digest = hashlib.sha256()
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name not in (MODEL, RECORD, LOG, DATASET):
                digest.update(f"{file.relative_to(folder)} {sha256_of(file)}\n".encode())
        return ConversionSource(folder, digest.hexdigest())

    @property
    def graph(self) -> Path:
        """The graph."""
        return self.folder / GRAPH

    @property
    def weight_bytes(self) -> int:
        """Size of its weights."""
        file = self.folder / WEIGHTS
        return file.stat().st_size if file.exists() else 0

    @property
    def calibration(self) -> Path:
        """Folder of recorded inputs."""
        return self.folder / CALIBRATION


@dataclass(frozen=True)
class ConversionCache:
    """Folder of conversions.

    Attributes:
        folder: Where.
    """

    folder: Path

    @staticmethod
    def default() -> ConversionCache:
        """The one of the state folder."""
        return ConversionCache(state_folder() / "npu")

    @contextlib.contextmanager
    def new(self) -> Iterator[Path]:
        """Yield a scratch folder on the cache's disk; it is gone afterwards unless it was kept.

        Raises:
            OutputError: The cache cannot be written.
        """
        scratch = self.folder / f"scratch-{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned()
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
        except OSError as error:
            raise OutputError(
                f"{self.folder} cannot be written: {error.strerror or error}.",
                remedy="Set BOARDVOICE_STATE to a folder that can be written.",
            ) from error
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def find(
        self, source: ConversionSource, target: str, precision: NpuPrecision, toolkit: str
    ) -> tuple[Path, ConversionRecord] | None:
        """A conversion of this graph by this toolkit, if it is there and whole."""
        folder = self._place(source.sha256, target, precision, toolkit)
        record = _record(folder)
        if record is None:
            return None
        model = folder / MODEL
        if not model.is_file() or sha256_of(model) != record.sha256:
            # Cut short or damaged: made again.
            shutil.rmtree(folder, ignore_errors=True)
            return None
        os.utime(folder)
        return model, record

    def keep(self, source: ConversionSource, record: ConversionRecord) -> Path:
        """Move a source with its model into the cache.

        Args:
            source: In a scratch folder, where the model lies beside it.
            record: What came out.

        Returns:
            The model.
        """
        with atomic_file(source.folder / RECORD) as stream:
            stream.write(record.model_dump_json(indent=2).encode())
        folder = self._place(record.source_sha256, record.target, record.precision, record.toolkit)
        with atomic_folder(folder, replace=True) as fresh:
            for file in source.folder.iterdir():
                os.rename(file, fresh / file.name)
        self._prune(folder)
        return folder / MODEL

    def source(self, sha256: str) -> ConversionSource | None:
        """The graph that a model was made from, for the simulator."""
        for folder in self.entries():
            record = _record(folder)
            if record is not None and record.source_sha256 == sha256:
                return ConversionSource(folder, sha256)
        return None

    def entries(self) -> list[Path]:
        """Folders of conversions, the latest used last."""
        try:
            found = [path for path in self.folder.iterdir() if (path / RECORD).is_file()]
            return sorted(found, key=lambda path: path.stat().st_mtime)
        except OSError:
            return []

    def _place(self, sha256: str, target: str, precision: str, toolkit: str) -> Path:
        made_from = json.dumps([_FORMAT, sha256, target, precision, toolkit])
        return self.folder / hashlib.sha256(made_from.encode()).hexdigest()[:32]

    def _prune(self, kept: Path) -> None:
        for folder in self.entries()[:-_MOST_KEPT]:
            if folder != kept:
                with contextlib.suppress(OSError):
                    remove_folder(folder)

    def _remove_abandoned(self) -> None:
        """Scratch folders of processes that were killed."""
        for path in self.folder.glob("scratch-*"):
            pid = path.name.rpartition("-")[2]
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)


def _record(folder: Path) -> ConversionRecord | None:
    try:
        return ConversionRecord.model_validate_json((folder / RECORD).read_bytes())
    except (OSError, ValidationError):
        return None
