"""Python and the packages that this one needs."""

from __future__ import annotations

import importlib
import platform
import re
import struct
import sys
from importlib.metadata import PackageNotFoundError, requires, version

from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.scene import Scene
from edge_runtime.requirements import older

_FIRST, _BEFORE = (3, 10), (3, 14)
_REQUIREMENT = re.compile(r"^([A-Za-z0-9_.-]+)\s*(?:>=\s*([0-9.]+))?")
# Those that load libraries of the system or of their own.
_NATIVE = ("numpy", "soundfile", "soxr", "tokenizers", "ml_dtypes", "yaml")


def check_python(
    scene: Scene, running: tuple[int, int, int] | None = None, bits: int = 8 * struct.calcsize("P")
) -> list[Finding]:
    """Whether this Python is one that the package runs on.

    Args:
        scene: What is examined.
        running: Its version; this one's by default.
        bits: Of its pointers.
    """
    found = running or (sys.version_info[0], sys.version_info[1], sys.version_info[2])
    text, evidence = ".".join(map(str, found)), f"{sys.executable}, {platform.machine()}"
    if bits < 64:
        return [
            Finding(
                "Python", "fail", f"{text} with {bits} bits; ONNX Runtime needs 64", evidence,
                "Install a 64-bit system.",
            )
        ]  # fmt: skip
    if not _FIRST <= found[:2] < _BEFORE or older(text, scene.profile.requires.python):
        least = scene.profile.requires.python
        return [
            Finding(
                "Python", "fail", f"{text}; it must be {least} to 3.13", evidence,
                "Make a virtual environment with another Python.",
            )
        ]  # fmt: skip
    if found[:2] == (3, 10):
        return [
            Finding(
                "Python", "ok", f"{text}; its last ONNX Runtime is 1.23, without an int8 KV cache",
                evidence, "",
            )
        ]  # fmt: skip
    return [Finding("Python", "ok", text, evidence)]


def check_packages(_scene: Scene) -> list[Finding]:
    """Whether every package is there, new enough, and can be imported."""
    try:
        wanted = requires("boardvoice") or []
    except PackageNotFoundError:
        return [
            Finding(
                "packages", "skipped", "boardvoice runs from a folder and is not installed",
                "importlib.metadata", "Install it with pip, so that its packages are checked.",
            )
        ]  # fmt: skip
    wrong, names = [], []
    for requirement in (one for one in wanted if "extra ==" not in one):
        match = _REQUIREMENT.match(requirement)
        if match is None or match[1].lower() == "onnxruntime":
            # A build of it may have another name; it has checks of its own.
            continue
        names.append(match[1])
        try:
            found = version(match[1])
        except PackageNotFoundError:
            wrong.append(f"{match[1]} is not installed")
            continue
        if match[2] and older(found, match[2]):
            wrong.append(f"{match[1]} is {found}, needed is {match[2]}")
    for name in _NATIVE:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:
            wrong.append(f"{name} cannot be imported: {error}")
    if wrong:
        return [
            Finding(
                "packages", "fail", "; ".join(wrong), sys.prefix,
                "pip install --upgrade boardvoice; for libsndfile, apt install libsndfile1.",
            )
        ]  # fmt: skip
    return [Finding("packages", "ok", f"{len(names)} are there and new enough", sys.prefix)]
