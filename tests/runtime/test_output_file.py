"""Results that go where the user said: pipes, devices, links, and what cannot be written."""

from __future__ import annotations

import os
import pty
import socket
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from edge_runtime.errors import OutputError
from edge_runtime.output_file import output_file, require_writable


def write(path: Path, data: bytes = b"new") -> None:
    require_writable(path)
    with output_file(path) as stream:
        stream.write(data)


def read_in_background(fifo: Path) -> tuple[threading.Thread, list[bytes]]:
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    return reader, found


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path, linked: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    target = tmp_path / "link" if linked else fifo
    if linked:
        target.symlink_to(fifo)
    reader, found = read_in_background(fifo)
    write(target)
    reader.join()
    assert found == [b"new"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == (["fifo", "link"] if linked else ["fifo"])


def test_a_character_device_is_written_into_and_stays_one() -> None:
    master, slave = pty.openpty()
    try:
        write(Path(os.ttyname(slave)))
        assert os.read(master, 10) == b"new"
        assert stat.S_ISCHR(os.stat(os.ttyname(slave)).st_mode)
    finally:
        os.close(master)
        os.close(slave)


def test_an_open_file_of_this_process_is_written_on_and_not_replaced(tmp_path: Path) -> None:
    # As "--json /dev/stdout > file" does, where a table follows.
    file = tmp_path / "file"
    with file.open("wb", buffering=0) as stream:
        stream.write(b"before ")
        for folder in ("/dev/fd", "/proc/self/fd"):
            write(Path(folder, str(stream.fileno())))
        stream.write(b" after")
    assert file.read_bytes() == b"before newnew after"
    assert os.listdir(tmp_path) == ["file"]


def test_a_pipe_without_a_writable_end_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(OutputError, match="Broken pipe"):
        write(Path(f"/dev/fd/{writing}"))
    os.close(writing)


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "file"
    (tmp_path / "link").symlink_to(file)
    for data in (b"first", b"second"):
        # First it points to nothing yet.
        write(tmp_path / "link", data)
        assert file.read_bytes() == data
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "folder") == ["file"]


def test_nothing_is_written_into_a_pipe_when_the_work_fails(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)


    def half() -> None:
        with output_file(fifo) as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    # Opening the pipe would wait for a reader that never comes.
    with pytest.raises(ZeroDivisionError):
        half()
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    before = sorted(os.listdir(tmp_path))
    for path, reason in (
        (tmp_path, "it is a folder"),
        (tmp_path / "none" / "file", "No such file or directory"),
        (tmp_path / "file" / "file", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (Path("/proc/version_of_mine"), "No such file or directory"),
        (tmp_path / "nul\0", "embedded null"),
    ):
        with pytest.raises(OutputError, match=reason):
            require_writable(path)
    require_writable(tmp_path / "file")
    require_writable(tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_socket_is_refused_and_stays() -> None:
    # Socket names are short.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        place = Path(folder, "socket")
        server.bind(str(place))
        with pytest.raises(OutputError, match="it is a socket"):
            write(place)
        assert stat.S_ISSOCK(place.stat().st_mode)


def test_a_block_device_is_refused_and_stays(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    try:
        os.mknod(disk, 0o600 | stat.S_IFBLK, os.makedev(7, 250))
    except PermissionError:
        pytest.skip("making a device node needs more rights")
    with pytest.raises(OutputError, match="it is a block device"):
        write(disk)
    assert stat.S_ISBLK(disk.stat().st_mode)


def test_a_full_device_is_an_error(tmp_path: Path) -> None:
    # A node of its own: what goes wrong here must not touch the system's.
    full = tmp_path / "full"
    try:
        os.mknod(full, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        full.open("wb").close()
    except PermissionError:
        pytest.skip("making a device node needs more rights")
    with pytest.raises(OutputError, match="No space left"):
        write(full)
    assert stat.S_ISCHR(full.stat().st_mode)
