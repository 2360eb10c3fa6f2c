"""`boardvoice rknn install`: an environment with rknn-toolkit2 and what it really needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_runtime.atomic import atomic_file
from edge_runtime.rknn_toolkit.environment import MARKER, installed_versions, toolkit_folder
from edge_runtime.rknn_toolkit.toolkit_error import ToolkitError
from edge_runtime.rknn_toolkit.worker import ToolkitWorker, clean_environment

OnStep = Callable[[str], None]

TOOLKIT = "rknn-toolkit2==2.5.0"
# The wheel's own list asks for packages that a conversion never imports, and for versions that
# newer Pythons do not have.
NEEDED = (
    "protobuf>=4.21.6,<=4.25.4", "psutil", "ruamel.yaml", "scipy", "tqdm", "opencv-python-headless",
    "fast-histogram", "numpy<=1.26.4", "onnx>=1.16.1,<=1.18.0", "onnxruntime>=1.17.0",
    "setuptools<81",
)  # fmt: skip
TORCH = "torch>=2.2"
_OLDEST, _NEWEST = (3, 9), (3, 12)
# 1.5 GB with a CPU build of PyTorch, and what pip unpacks on the way.
FREE_BYTES = 4 << 30
_STEP_LIMIT_S = 3600
_CHECK_LIMIT_S = 300
_MOST_TOLD = 400


def install_toolkit(
    *,
    python: str | None = None,
    torch_index: str | None = None,
    force: bool = False,
    on_step: OnStep | None = None,
) -> dict[str, str]:
    """Make the environment; it counts only once everything is in it and imports.

    Args:
        python: Interpreter to make it with, 3.9 to 3.12; found on PATH if not named.
        torch_index: Package index to take PyTorch from, such as one with CPU-only wheels.
        force: Make it anew where there is one.
        on_step: Told what is being done.

    Returns:
        Versions of what takes part.

    Raises:
        ToolkitError: It cannot be made; the message says why and where pip's output is.
    """
    tell = on_step or (lambda step: None)
    folder = toolkit_folder()
    if not force and (found := installed_versions(folder)) is not None:
        return found
    host = _host_python(python)
    log = folder.parent / "rknn-toolkit-install.log"
    _make_room(folder, log)
    target = folder / "bin/python"
    pip = [str(target), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    index = ["--index-url", torch_index] if torch_index else []
    for step, command in (
        ("environment", [host, "-m", "venv", str(folder)]),
        ("rknn-toolkit2", [*pip, "--no-deps", TOOLKIT]),
        ("PyTorch", [*pip, *index, TORCH]),
        ("packages", [*pip, *NEEDED]),
    ):
        tell(step)
        _call(step, command, log)
    tell("check")
    with ToolkitWorker(target, folder / "check.log") as worker:
        versions: dict[str, str] = worker.ask("check", _CHECK_LIMIT_S)
    with atomic_file(folder / MARKER) as stream:
        stream.write(json.dumps(versions, indent=2).encode())
    return versions


def _make_room(folder: Path, log: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
        if free < FREE_BYTES:
            raise ToolkitError(
                f"{folder.parent} has {free >> 20} MiB free; rknn-toolkit2 with PyTorch needs "
                f"{FREE_BYTES >> 20}.", reason="install",
                remedy="Free space, or set BOARDVOICE_STATE to a folder on a larger disk.",
            )  # fmt: skip
        # Its scripts name its own path, so it is made in place; the marker comes last.
        if folder.exists():
            (folder / MARKER).unlink(missing_ok=True)
            shutil.rmtree(folder)
        log.write_bytes(b"")
    except OSError as error:
        raise ToolkitError(
            f"{folder} cannot be written: {error.strerror or error}.", reason="install",
            remedy="Set BOARDVOICE_STATE to a folder that can be written.",
        ) from error  # fmt: skip


def _call(step: str, command: Sequence[str], log: Path) -> None:
    with log.open("ab") as sink, tempfile.TemporaryFile() as own:
        sink.write(f"\n$ {' '.join(command)}\n".encode())
        sink.flush()
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=own, stderr=subprocess.STDOUT,
                env=clean_environment(), timeout=_STEP_LIMIT_S, check=False,
            ).returncode  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolkitError(
                f"Installing rknn-toolkit2 stopped at '{step}': {error}.", reason="install",
                remedy=f"The output of pip is in {log}.",
            ) from error  # fmt: skip
        own.seek(0)
        output = own.read()
        sink.write(output)
    if code:
        lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        said = (errors or ["no output."])[0][:_MOST_TOLD]
        raise ToolkitError(
            f"Installing rknn-toolkit2 failed at '{step}': {said}", reason="install",
            remedy=f"The whole output is in {log}.",
        )  # fmt: skip


def _host_python(named: str | None) -> str:
    if named is not None:
        version = _version(named)
        if version is None or not _OLDEST <= version <= _NEWEST:
            said = "no Python with venv" if version is None else "Python {}.{}".format(*version)
            raise ToolkitError(
                f"{named} is {said}; rknn-toolkit2 needs 3.9 to 3.12.", reason="install",
                remedy="Name another with --python.",
            )  # fmt: skip
        return named
    names = [f"python3.{minor}" for minor in (11, 12, 10, 9)]
    for candidate in (sys.executable, *filter(None, map(shutil.which, names))):
        version = _version(candidate)
        if version is not None and _OLDEST <= version <= _NEWEST:
            return candidate
    raise ToolkitError(
        "rknn-toolkit2 needs Python 3.9 to 3.12 with venv, and there is none on PATH.",
        reason="install", remedy="Install one and name it with --python.",
    )  # fmt: skip


def _version(python: str) -> tuple[int, int] | None:
    """Version of an interpreter that can make environments."""
    try:
        said = subprocess.run(
            [python, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
            env=clean_environment(), cwd=os.sep,
        ).stdout.split()  # fmt: skip
        return int(said[0]), int(said[1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
