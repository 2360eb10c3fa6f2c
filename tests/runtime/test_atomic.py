"""Atomic files and folders: a killed process, a full disk, leftovers of either."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edge_runtime import atomic
from edge_runtime.atomic import atomic_file, atomic_folder

ROOT = Path(__file__).resolve().parents[2]

# Writes a folder or a file, and kills itself for real at the n-th step that changes the disk.
CHILD = """
import os, signal, sys
from pathlib import Path
from edge_runtime import atomic

kind, target, kill_at = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
steps = 0

def deadly(function):
    def step(*arguments, **options):
        global steps
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return step

os.rename, os.replace, os.fsync, os.mkdir = map(
    deadly, (os.rename, os.replace, os.fsync, os.mkdir)
)
atomic.shutil.rmtree = deadly(atomic.shutil.rmtree)
if kind == "folder":
    with atomic.atomic_folder(target, replace=True) as part:
        for name in ("one", "two"):
            deadly((part / name).write_text)("new")
else:
    with atomic.atomic_file(target, "w") as stream:
        deadly(stream.write)("new")
"""


def child(kind: str, target: Path, kill_at: int) -> int:
    return subprocess.run(
        [sys.executable, "-c", CHILD, kind, str(target), str(kill_at)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    ).returncode


def content(path: Path) -> dict[str, str] | str | None:
    if path.is_dir():
        return {file.name: file.read_text() for file in path.iterdir()}
    return path.read_text() if path.exists() else None


def make_old(kind: str, target: Path) -> None:
    target.parent.mkdir()
    if kind == "folder":
        target.mkdir()
        (target / "one").write_text("old")
    else:
        target.write_text("old")


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_killed_process_leaves_the_old_or_the_new_and_the_next_one_cleans_up(
    kind: str, tmp_path: Path
) -> None:
    old = {"one": "old"} if kind == "folder" else "old"
    new = {"one": "new", "two": "new"} if kind == "folder" else "new"
    kill_at, found = 0, []
    while True:
        kill_at += 1
        target = tmp_path / f"at{kill_at}" / "target"
        make_old(kind, target)
        status = child(kind, target, kill_at)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        found.append(content(target))
        if found[-1] is None:
            # Killed between two renames: only here is it under another name, and whole.
            (aside,) = target.parent.glob(".target.*.old")
            assert content(aside) == old
        assert child(kind, target, 0) == 0
        assert content(target) == new
        assert os.listdir(target.parent) == ["target"]
    assert content(target) == new
    assert os.listdir(target.parent) == ["target"]
    assert all(state in (old, new, None) for state in found)
    assert old in found
    assert new in found
    assert found.count(None) == (1 if kind == "folder" else 0)
    assert kill_at > (8 if kind == "folder" else 3)


def test_an_unfinished_swap_is_put_back_even_without_replace(tmp_path: Path) -> None:
    target = tmp_path / "target"
    stale = tmp_path / f".target.{_dead_pid()}-0.old"
    stale.mkdir()
    (stale / "one").write_text("old")
    with pytest.raises(FileExistsError), atomic_folder(target):
        pass
    assert content(target) == {"one": "old"}
    assert os.listdir(tmp_path) == ["target"]


def test_leftovers_of_this_process_number_are_removed_unless_they_are_in_use(
    tmp_path: Path,
) -> None:
    target = tmp_path / "target"
    # A container's only process has the same number each time it starts.
    left = tmp_path / f".target.{os.getpid()}-99999.part"
    left.mkdir()
    with atomic_folder(target, replace=True) as outer:
        with atomic_folder(target, replace=True) as inner:
            assert not left.exists()
            assert outer.is_dir()
            (inner / "inner").write_text("x")
        assert content(target) == {"inner": "x"}
        (outer / "outer").write_text("x")
    assert content(target) == {"outer": "x"}
    assert os.listdir(tmp_path) == ["target"]


def test_leftovers_of_a_living_process_stay(tmp_path: Path) -> None:
    left = tmp_path / f".target.{os.getppid()}-0.part"
    left.mkdir()
    with atomic_folder(tmp_path / "target"):
        pass
    assert left.is_dir()


@pytest.mark.parametrize(
    "name",
    [".target.x.part", ".target.part", ".targets.PID-0.part", ".target.PID-0.bak", "target.1.part"],
)
def test_other_files_beside_it_are_left_alone(tmp_path: Path, name: str) -> None:
    other = tmp_path / name.replace("PID", str(_dead_pid()))
    other.write_text("mine")
    with atomic_folder(tmp_path / "target"):
        pass
    assert other.read_text() == "mine"


@pytest.mark.parametrize("name", ["a[b]c", "12", "t.1", "*", "ß é"])
def test_leftovers_are_found_whatever_the_name(tmp_path: Path, name: str) -> None:
    left = tmp_path / f".{name}.{_dead_pid()}-3.part"
    left.mkdir()
    (left / "x").write_text("x")
    with atomic_folder(tmp_path / name):
        pass
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_failure_inside_removes_the_part_and_keeps_the_old(
    tmp_path: Path, error: BaseException
) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "one").write_text("old")
    file.write_text("old")

    def write_folder() -> None:
        with atomic_folder(folder, replace=True) as part:
            (part / "one").write_text("half")
            raise error

    def write_file() -> None:
        with atomic_file(file, "w") as stream:
            stream.write("half")
            raise error

    for write in (write_folder, write_file):
        with pytest.raises(type(error)):
            write()
    assert content(folder) == {"one": "old"}
    assert content(file) == "old"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_disk_error_at_the_end_removes_the_part_and_keeps_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "one").write_text("old")
    real = getattr(os, call)

    def fail(source: object, *rest: object) -> object:
        if call == "rename" and ".part" not in str(source):
            return real(source, *rest)
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="broken"), atomic_folder(folder, replace=True) as part:
        (part / "one").write_text("new")
    monkeypatch.undo()
    assert content(folder) == {"one": "old"}
    assert os.listdir(tmp_path) == ["folder"]


def test_what_stands_there_is_kept_without_replace(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileExistsError), atomic_folder(folder):
        raise AssertionError("not reached")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError), atomic_folder(tmp_path / "dangling"):
        raise AssertionError("not reached")
    assert sorted(os.listdir(tmp_path)) == ["dangling", "folder"]


def test_a_name_that_was_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_folder(tmp_path / "folder"):
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "theirs").write_text("x")

    with pytest.raises(FileExistsError):
        write()
    assert content(tmp_path / "folder") == {"theirs": "x"}
    assert os.listdir(tmp_path) == ["folder"]


def test_replacing_a_link_leaves_what_it_led_to(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "one").write_text("old")
    (tmp_path / "link").symlink_to(real)
    with atomic_folder(tmp_path / "link", replace=True) as part:
        (part / "one").write_text("new")
    assert not (tmp_path / "link").is_symlink()
    assert content(tmp_path / "link") == {"one": "new"}
    assert content(real) == {"one": "old"}
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_everything_is_flushed_before_the_name_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = atomic.fsync_path, os.rename
    monkeypatch.setattr(
        atomic, "fsync_path", lambda path: (events.append(path.name), fsync(path))[1]
    )
    monkeypatch.setattr(os, "rename", lambda a, b: (events.append("rename"), rename(a, b))[1])
    with atomic_folder(tmp_path / "folder") as part:
        (part / "sub").mkdir()
        (part / "sub/deep").write_text("x")
    assert events == ["sub", "deep", part.name, "rename", tmp_path.name]


def _dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_folder_that_another_process_put_there_in_between_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, others = tmp_path / "bundle", tmp_path / "others"
    others.mkdir()
    (others / "theirs").write_text("theirs")
    rename = os.rename

    def race(source: object, place: object) -> None:
        if place == target and others.exists():
            rename(others, target)
        rename(source, place)  # type: ignore[arg-type]

    with atomic_folder(target, replace=True) as part:
        (part / "ours").write_text("ours")
        monkeypatch.setattr(os, "rename", race)
    assert [file.name for file in target.iterdir()] == ["ours"]
    assert [file.name for file in tmp_path.iterdir()] == ["bundle"]
