"""Where engines and timings lie: one folder per graph, device and way of building."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from device_profiles.detect import detect
from edge_runtime.atomic import atomic_file, remove_folder
from edge_runtime.bundle import MANIFEST, Bundle, graph_name, sha256_of
from edge_runtime.errors import BackendError

FOLDER = "engines"
# Written last: a folder without it holds the leavings of a build that did not end.
DONE = "engine.done"
_KEPT = 2
_LIBRARIES = (
    "usr/lib/aarch64-linux-gnu/libnvinfer.so.*.*",
    "usr/lib/x86_64-linux-gnu/libnvinfer.so.*.*",
    "usr/local/lib/libnvinfer.so.*.*",
    "usr/lib/libnvinfer.so.*.*",
)


@dataclass(frozen=True)
class EngineCache:
    """The state folder's part for engines.

    Attributes:
        state: The state folder.
        device: What besides the graph an engine depends on: chip, system, libraries.
    """

    state: Path
    device: str = ""

    @staticmethod
    def here(state: Path, root: Path = Path("/")) -> EngineCache:
        """The cache of this device."""
        return EngineCache(state, device_words(root))

    def micro(self, options: Mapping[str, str]) -> Path:
        """Folder for the micro-model's engine."""
        return self.state / FOLDER / f"micro-model-{_digest(self.device, *_words(options))}"

    def folder(self, bundle: Bundle, file: str, options: Mapping[str, str]) -> Path:
        """Folder for one graph.

        Args:
            bundle: The graph's bundle.
            file: The graph file's name in it.
            options: TensorRT's options; an engine of others is another.
        """
        files = bundle.manifest.files
        weights = f"{file.rpartition('/')[0]}/{graph_name(file)}.weights"
        hashes = [files[name].sha256 for name in (file, weights) if name in files]
        rest = _digest(self.device, *hashes, *_words(options))
        return self.state / FOLDER / f"{_prefix(bundle)}-{graph_name(file)}-{rest}"

    def is_built(self, folder: Path) -> bool:
        """Whether an engine was built there to the end; marks it as used now."""
        done = folder / DONE
        # The folder may be shared and not ours to write.
        with contextlib.suppress(OSError):
            if done.is_file():
                os.utime(done)
        return done.is_file()

    def make(self, folder: Path, build: Callable[[], None]) -> None:
        """Build into a folder that has nothing of a build that was killed.

        Raises:
            BackendError: The folder cannot be written, or what ``build`` raises.
        """
        try:
            if folder.exists():
                remove_folder(folder)
            folder.mkdir(parents=True)
            build()
            self._mark_built(folder)
        except OSError as error:
            raise BackendError(
                f"its engine cannot be kept in {folder}: {error.strerror or error}",
                remedy="Make the state folder writable, or name another with BOARDVOICE_STATE.",
            ) from error

    def _mark_built(self, folder: Path) -> None:
        """Note that a build has ended well, and drop older engines of the same graph."""
        with atomic_file(folder / DONE) as stream:
            stream.write(f"{self.device}\n".encode())
        kind = folder.name.rpartition("-")[0]
        others = [
            other for other in folder.parent.glob(f"{kind}-*") if other.is_dir() and other != folder
        ]
        for other in sorted(others, key=_used, reverse=True)[_KEPT - 1 :]:
            with contextlib.suppress(OSError):
                remove_folder(other)


def device_words(root: Path = Path("/")) -> str:
    """Chip, Jetson Linux, TensorRT and ONNX Runtime: an engine is good for exactly these."""
    facts = detect(root)
    libraries = sorted(path.name for pattern in _LIBRARIES for path in root.glob(pattern))
    runtime = f"onnxruntime {onnxruntime.__version__}"
    words = (facts.machine, facts.soc, ",".join(facts.tree.modules()), facts.l4t, *libraries)
    return " ".join(filter(None, (*words, runtime)))


def _used(folder: Path) -> float:
    try:
        return (folder / DONE).stat().st_mtime
    except OSError:
        return 0.0


def _prefix(bundle: Bundle) -> str:
    return sha256_of(bundle.folder / MANIFEST)[:16]


def _words(options: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in sorted(options.items())]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
