"""Writes a bundle: graphs with their weight files, further files, the manifest, all at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx

from edge_runtime.atomic import atomic_folder
from edge_runtime.bundle import FORMAT, MANIFEST, BundleFile, Manifest, manifest_text, sha256_of
from edge_runtime.errors import OutputError
from export.graph.builder import GraphBuilder
from export.progress import ExportProgress
from export.weights.plan import WeightPlan
from export.weights.weight_file import WeightFile

GRAPHS = "graphs"


class SaveGraph(Protocol):
    """Saves a graph of the bundle."""

    def __call__(self, model: onnx.ModelProto, variant: str = "") -> str:
        """Save it and return its path in the bundle."""
        ...


class BundleWriter:
    """Collects the files of one bundle in a temporary folder.

    Args:
        folder: The temporary folder.
        plan: Weight plan of all graphs.
        progress: Told which file is being written.
    """

    def __init__(
        self, folder: Path, plan: WeightPlan, progress: ExportProgress | None = None
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._progress = progress or ExportProgress()
        self._files: dict[str, BundleFile] = {}

    @property
    def plan(self) -> WeightPlan:
        """Weight plan of all graphs."""
        return self._plan

    @contextlib.contextmanager
    def graph(self, name: str) -> Iterator[tuple[GraphBuilder, SaveGraph]]:
        """Open a graph with a weight file beside it.

        Yields:
            The builder, and a function that saves the model, or a variant of it over the same
            weights (``NAME.VARIANT.onnx``), and returns its path in the bundle.
        """
        folder = self._folder / GRAPHS
        folder.mkdir(exist_ok=True)
        weights_path = folder / f"{name}.weights"

        def save(model: onnx.ModelProto, variant: str = "") -> str:
            data = model.SerializeToString()
            stem = f"{name}.{variant}" if variant else name
            return self.add_bytes(f"{GRAPHS}/{stem}.onnx", data)

        self._progress.file(f"{GRAPHS}/{weights_path.name}")
        with WeightFile(weights_path) as file:
            yield GraphBuilder(name, file, self._plan), save
        if file.size == 0:
            weights_path.unlink()
        else:
            self._files[f"{GRAPHS}/{name}.weights"] = BundleFile(size=file.size, sha256=file.sha256)

    def add_bytes(self, name: str, data: bytes) -> str:
        """Add a small file."""
        (self._folder / name).write_bytes(data)
        self._files[name] = BundleFile(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        return name

    def add_array(
        self, name: str, dtype: npt.DTypeLike, pieces: Iterable[npt.NDArray[np.generic]]
    ) -> str:
        """Add a raw array, given in consecutive pieces."""
        self._progress.file(name)
        digest, size = hashlib.sha256(), 0
        with (self._folder / name).open("xb") as stream:
            for piece in pieces:
                values = np.ascontiguousarray(piece, dtype=dtype)
                data = values.reshape(-1).view(np.uint8).data
                stream.write(data)
                digest.update(data)
                size += len(data)
        self._files[name] = BundleFile(size=size, sha256=digest.hexdigest())
        return name

    def add_copy(self, name: str, source: Path) -> str:
        """Add a copy of a file."""
        target = self._folder / name
        shutil.copyfile(source, target)
        self._files[name] = BundleFile(size=target.stat().st_size, sha256=sha256_of(target))
        return name

    @property
    def folder(self) -> Path:
        """The temporary folder, for what has to run the graphs before the bundle is complete."""
        return self._folder

    def finish(self, manifest: Manifest) -> Manifest:
        """Write the manifest, with all files there are now."""
        text = manifest_text(self.with_files(manifest))
        (self._folder / MANIFEST).write_text(text, encoding="utf-8")
        return Manifest.model_validate_json(text)

    def with_files(self, manifest: Manifest) -> Manifest:
        """A manifest with all files there are now."""
        return manifest.model_copy(update={"files": self._sorted_files()})

    def manifest(
        self,
        *,
        family: str,
        name: str,
        made_by: str,
        model: dict[str, Any],
        profile: str | None,
        synthetic: bool,
    ) -> Manifest:
        """The manifest of the files so far."""
        return Manifest(
            format=FORMAT,
            family=family,
            name=name,
            made_by=made_by,
            weights=self._plan.name,
            formats=self._plan.as_text(),
            profile=profile,
            synthetic=synthetic,
            model=model,
            files=self._sorted_files(),
        )

    def _sorted_files(self) -> dict[str, BundleFile]:
        return dict(sorted(self._files.items()))


@contextlib.contextmanager
def bundle_writer(
    folder: Path, plan: WeightPlan, *, replace: bool = False, progress: ExportProgress | None = None
) -> Iterator[BundleWriter]:
    """Open a writer; the bundle appears under its name when the block succeeds.

    Raises:
        OutputError: The folder exists (without ``replace``) or is no bundle, or cannot be written.
    """
    # A relative path such as "." has no name to rename.
    target = Path(os.path.abspath(folder))
    if replace and os.path.lexists(target) and not _is_replaceable(target):
        # --force must not wipe a folder that was named by mistake.
        raise OutputError(f"{folder} exists and is not a bundle.", remedy="Name another folder.")
    try:
        with atomic_folder(target, replace=replace) as temporary:
            yield BundleWriter(temporary, plan, progress)
    except OSError as error:
        if isinstance(error, FileExistsError) and os.path.lexists(target):
            raise OutputError(
                f"{folder} exists.", remedy="Name another folder or use --force."
            ) from None
        raise OutputError(
            f"{folder} cannot be written: {error.strerror or error}.",
            remedy="Check free space and permissions.",
        ) from error


def _is_replaceable(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MANIFEST).is_file() or not any(folder.iterdir()))
