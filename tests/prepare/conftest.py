"""A state folder per test, and prepared files to look at."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from preparing import Mount, make

from edge_runtime.bundle import Bundle
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_bundle import PreparedBundle, find_prepared


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state folder, with a name that a user may well choose."""
    folder = tmp_path / "my state ü"
    monkeypatch.setenv("BOARDVOICE_STATE", str(folder))
    return folder


@pytest.fixture(scope="module")
def made_once(f32_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder in which the f32 bundle is prepared. Do not change it."""
    state = tmp_path_factory.mktemp("made")
    make(f32_bundle, state)
    return state


@pytest.fixture
def prepared(made_once: Path, state: Path, f32_bundle: Path) -> PreparedBundle:
    """The f32 bundle's prepared files in `state`, to damage."""
    # Times are part of what is checked, and `copytree` keeps them.
    shutil.copytree(made_once, state)
    bundle = Bundle.open(f32_bundle)
    found = find_prepared(bundle, PreparationKey.of(bundle), state)
    assert found is not None
    return found


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a tmpfs with options; skips where that is not allowed."""
    with ExitStack() as stack:
        yield lambda options: stack.enter_context(_mounted(tmp_path / "mounted", options))


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
