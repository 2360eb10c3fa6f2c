"""Prepared folders go when nobody will want them again, and never while they are used."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from preparing import make

from edge_runtime.bundle import Bundle
from edge_runtime.errors import PrepareError
from edge_runtime.prepare import prepared_bundle
from edge_runtime.prepare.folder_use import FolderUse
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_bundle import use_prepared
from edge_runtime.prepare.prepared_info import INFO, PreparedInfo
from edge_runtime.prepare.pruning import prune_for_room, prune_old
from edge_runtime.voice import Voice

ROOT = Path(__file__).resolve().parents[2]
DAY = 24 * 3600
KEY = PreparationKey("b" * 64, "cpu", "onnxruntime 2")

HOLDS = """
import sys
from pathlib import Path
from edge_runtime.prepare.folder_use import FolderUse
use = FolderUse.shared(Path(sys.argv[1]))
print(use is not None, flush=True)
sys.stdin.read()
"""


class State:
    """Prepared folders that are descriptions only."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent / "prepared"
        self.parent.mkdir()
        self._count = 0

    def add(self, days: float, *, bundle: str = "a", source: Path | None = None, **key) -> Path:
        """One that was used so many days ago, from a bundle that is gone unless it has a place."""
        self._count += 1
        folder = self.parent / f"{bundle * 16}-{self._count:016x}"
        folder.mkdir()
        info = PreparedInfo(
            **{"bundle": bundle * 64, "cpu": KEY.cpu, "runtime": KEY.runtime, "kv_dtype": "f32",
               "layout": KEY.layout, "files": {}, "costs": {}, **key},
            source=str(source or self.parent / "nowhere"),
        )  # fmt: skip
        (folder / INFO).write_text(info.model_dump_json())
        (folder / "lm.weights").write_text("x")
        then = time.time() - days * DAY
        os.utime(folder / INFO, (then, then))
        return folder

    def left(self) -> set[Path]:
        return set(self.parent.iterdir())


@pytest.fixture
def folders(tmp_path: Path) -> State:
    return State(tmp_path)


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle that is where it was."""
    monkeypatch.setattr(
        "edge_runtime.prepare.pruning.is_bundle", lambda folder, _: folder.name == "there"
    )
    return tmp_path / "there"


def test_of_bundles_that_are_gone_the_two_used_last_stay_for_a_week(folders: State) -> None:
    old = [folders.add(days, bundle="cdef"[days - 3]) for days in (6, 5, 4, 3)]
    prune_old(folders.parent, KEY)
    assert folders.left() == set(old[2:])
    for folder in old[2:]:
        then = time.time() - 8 * DAY
        os.utime(folder / INFO, (then, then))
    prune_old(folders.parent, KEY)
    assert folders.left() == set()


def test_what_was_made_for_another_device_stays_for_a_month(folders: State, there: Path) -> None:
    others = {"runtime": "onnxruntime 1", "cpu": "another", "layout": 1}
    kept = {folders.add(29, source=there, **{name: value}) for name, value in others.items()}
    for name, value in others.items():
        folders.add(31, source=there, **{name: value})
    # Another cache type, or another bundle, on this device: as long as the bundle is there.
    kept |= {folders.add(400, source=there), folders.add(400, bundle="b", source=there)}
    prune_old(folders.parent, KEY)
    assert folders.left() == kept


def test_what_cannot_be_read_is_taken_for_another_device(folders: State) -> None:
    young, old = folders.add(0), folders.add(0)
    for folder in (young, old):
        (folder / INFO).write_text("{")
    os.utime(old, (0, 0))
    for name in (".lock", "notes.txt"):
        (folders.parent / name).write_text("")
    (folders.parent / "my folder").mkdir()
    prune_old(folders.parent, KEY)
    names = {path.name for path in folders.left()}
    assert names == {young.name, ".lock", "notes.txt", "my folder"}


def test_for_room_bundles_that_are_gone_go_first_then_this_one_for_other_devices(
    folders: State, there: Path
) -> None:
    other = {"runtime": "onnxruntime 1", "source": there}
    order = [
        folders.add(3), folders.add(1),
        folders.add(20, bundle="b", **other), folders.add(10, bundle="b", **other),
    ]  # fmt: skip
    kept = {folders.add(300, source=there), folders.add(20, **other)}
    for count in range(5):
        prune_for_room(folders.parent, KEY, lambda left=count: len(folders.left()) <= 6 - left)
        assert folders.left() == {*kept, *order[count:]}
    prune_for_room(folders.parent, KEY, lambda: False)
    assert folders.left() == kept


def test_a_folder_in_use_is_never_removed(folders: State) -> None:
    used = folders.add(400)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDS, used], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert child.stdout.readline() == b"True\n"
        own = folders.add(400)
        with_own = FolderUse.shared(own)
        prune_old(folders.parent, KEY)
        prune_for_room(folders.parent, KEY, lambda: False)
        assert folders.left() == {used, own}
        with_own.end()
        prune_old(folders.parent, KEY)
        assert folders.left() == {used}
    finally:
        child.kill()
        child.communicate()
    prune_old(folders.parent, KEY)
    assert folders.left() == set()


def test_a_loaded_voice_uses_its_folder_and_marks_when(f32_bundle: Path, state: Path) -> None:
    folder = make(f32_bundle, state).folder
    os.utime(folder / INFO, (0, 0))
    voice = Voice.load(f32_bundle, threads=1, prepare="auto")
    assert time.time() - (folder / INFO).stat().st_mtime < 60
    assert FolderUse.alone(folder) is None
    del voice
    gc.collect()
    free = FolderUse.alone(folder)
    assert free is not None


def test_a_bundle_that_moved_is_known_at_its_new_place(
    f32_bundle: Path, state: Path, tmp_path: Path
) -> None:
    first = shutil.copytree(f32_bundle, tmp_path / "first")
    made = make(first, state)
    assert made.info.source == str(first)

    def source() -> str:
        return PreparedInfo.model_validate_json((made.folder / INFO).read_bytes()).source

    def use(bundle: Path) -> None:
        opened = Bundle.open(bundle)
        assert use_prepared(opened, PreparationKey.of(opened), state) is not None

    second = shutil.copytree(first, tmp_path / "second")
    use(second)
    assert source() == str(first)
    shutil.rmtree(first)
    use(second)
    assert source() == str(second)
    assert made.damaged() == []


def test_a_full_disk_is_cleared_of_bundles_that_are_gone(
    f32_bundle: Path, int8_bundle: Path, state: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    copy = shutil.copytree(int8_bundle, tmp_path / "copy")
    gone = make(copy, state).folder
    shutil.rmtree(copy)
    real = shutil.disk_usage

    def usage(path: Path):
        return real(path)._replace(free=(65 << 20) if gone.exists() else 1 << 40)

    monkeypatch.setattr(prepared_bundle.shutil, "disk_usage", usage)
    held = FolderUse.shared(gone)
    with pytest.raises(PrepareError, match="65 MiB are free"):
        make(f32_bundle, state)
    assert held is not None
    held.end()
    make(f32_bundle, state)
    assert not gone.exists()
