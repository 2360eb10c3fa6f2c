"""What a prepared bundle belongs to: one bundle, one CPU type, one ONNX Runtime."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime

from edge_runtime.backends.session_settings import SessionSettings
from edge_runtime.bundle import MANIFEST, Bundle, sha256_of

# Raise it when the files that `worker` writes change.
LAYOUT = 3


@dataclass(frozen=True)
class PreparationKey:
    """Prepared files are good for exactly this.

    Attributes:
        bundle: SHA-256 of the manifest, which holds every file's own.
        cpu: SHA-256 of the machine type and the CPU's feature flags: they choose the kernels.
        runtime: ONNX Runtime's version and provider.
        kv_dtype: Storage of keys and values; it chooses among the bundle's graphs.
        settings: Of the sessions; packed weights and measured memory depend on them.
        layout: Version of the prepared files.
    """

    bundle: str
    cpu: str
    runtime: str
    kv_dtype: str = "f32"
    settings: SessionSettings = field(default_factory=SessionSettings)
    layout: int = LAYOUT

    @staticmethod
    def of(
        bundle: Bundle,
        root: Path = Path("/"),
        *,
        kv_dtype: str = "f32",
        settings: SessionSettings | None = None,
    ) -> PreparationKey:
        """The key of a bundle on this device."""
        return PreparationKey(
            bundle=sha256_of(bundle.folder / MANIFEST),
            cpu=_digest(platform.machine(), *sorted(_cpu_flags(root))),
            runtime=f"onnxruntime {onnxruntime.__version__} CPUExecutionProvider",
            kv_dtype=kv_dtype,
            settings=settings or SessionSettings(),
        )

    @property
    def bundle_prefix(self) -> str:
        """Start of the folder name of everything prepared from this bundle."""
        return self.bundle[:16]

    @property
    def folder_name(self) -> str:
        """Folder that holds the prepared files."""
        words = [self.settings.words] if self.settings.words else []
        rest = _digest(self.cpu, self.runtime, self.kv_dtype, str(self.layout), *words)
        return f"{self.bundle_prefix}-{rest[:16]}"


def _cpu_flags(root: Path) -> set[str]:
    """x86 calls them flags, ARM Features; big and little cores may differ, so all are taken."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    flags: set[str] = set()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features", "CPU part", "CPU implementer"):
            flags.update(value.split())
    return flags


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
