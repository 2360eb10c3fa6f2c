"""The state folder and the disk that it is on."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from edge_runtime.bundle import Bundle
from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.footprint import Footprint
from edge_runtime.doctor.scene import Scene
from edge_runtime.state_folder import VARIABLE

_MIB = 1 << 20


def check_storage(scene: Scene, bundle: Bundle | None) -> list[Finding]:
    """Whether prepared files can be kept; without them a bundle runs, with more memory."""
    need = Footprint.of(bundle, scene.profile, scene.state, scene.root) if bundle else None
    parent = _existing(scene.state)
    problem = _unwritable(parent)
    if problem:
        kept = need is not None and need.prepared is not None
        return [
            Finding(
                "state folder", "ok" if kept else "warn",
                f"it cannot be written: {problem}"
                + ("; what was prepared there is used" if kept else "; nothing can be prepared"),
                str(scene.state),
                "" if kept else f"Name a folder that can be written with {VARIABLE}.",
            )
        ]  # fmt: skip
    findings = [Finding("state folder", "ok", "it can be written", str(scene.state))]
    free = shutil.disk_usage(parent).free
    if need is None or not need.disk:
        return [*findings, Finding("disk", "ok", f"{free // _MIB} MiB free", str(parent))]
    words = f"{free // _MIB} MiB free, preparing takes {need.disk // _MIB} MiB"
    if free < need.disk:
        remedy = f"Free some, or name another disk with {VARIABLE}; it runs unprepared until then."
        return [*findings, Finding("disk", "warn", words, str(parent), remedy)]
    return [*findings, Finding("disk", "ok", words, str(parent))]


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    folder = Path(os.path.abspath(folder))
    return next((one for one in (folder, *folder.parents) if os.path.lexists(one)), Path("/"))


def _unwritable(folder: Path) -> str:
    """Why nothing can be written in a folder; empty if it can be."""
    try:
        # Tried, since permissions say nothing of disks that are mounted read-only.
        with tempfile.TemporaryFile(dir=folder, prefix=".boardvoice-doctor-"):
            return ""
    except OSError as error:
        return error.strerror or str(error)
