"""Where the toolkit's own Python environment is."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from edge_runtime.rknn_toolkit.toolkit_error import ToolkitError
from edge_runtime.state_folder import state_folder

VARIABLE = "BOARDVOICE_RKNN_PYTHON"
MARKER = "boardvoice-toolkit.json"
_INSTALL = (
    f"Run 'boardvoice rknn install', or set {VARIABLE} to the Python of an environment that has "
    "rknn-toolkit2."
)


@dataclass(frozen=True)
class ToolkitEnvironment:
    """The environment of rknn-toolkit2.

    Attributes:
        python: Its interpreter.
        own: Whether `boardvoice rknn install` made it.
    """

    python: Path
    own: bool

    @staticmethod
    def find() -> ToolkitEnvironment:
        """The environment that ``BOARDVOICE_RKNN_PYTHON`` names, or the installed one.

        Raises:
            ToolkitError: There is none, or its installation was cut short.
        """
        if named := os.environ.get(VARIABLE):
            python = Path(named)
            if python.is_dir() or not os.access(python, os.X_OK):
                raise ToolkitError(
                    f"{VARIABLE} is {named}, which is no program.", reason="missing",
                    remedy="Name the environment's bin/python.",
                )  # fmt: skip
            return ToolkitEnvironment(python, own=False)
        folder = toolkit_folder()
        if not folder.exists():
            raise ToolkitError(
                "rknn-toolkit2 is not installed.", reason="missing", remedy=_INSTALL
            )
        python = folder / "bin/python"
        if not (folder / MARKER).is_file() or not python.exists():
            raise ToolkitError(
                f"{folder}: the installation of rknn-toolkit2 was cut short.", reason="missing",
                remedy="Run 'boardvoice rknn install' again.",
            )  # fmt: skip
        return ToolkitEnvironment(python, own=True)


def installed_versions(folder: Path) -> dict[str, str] | None:
    """Versions that were noted at the end of the installation; None where it did not end."""
    try:
        found = json.loads((folder / MARKER).read_bytes())
    except (OSError, ValueError):
        return None
    return {str(name): str(value) for name, value in found.items()} if found else None


def toolkit_folder() -> Path:
    """Where `boardvoice rknn install` puts it."""
    return state_folder() / "rknn-toolkit"
