"""Where the Wyoming server listens, and where it will not."""

from __future__ import annotations

import importlib.util
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from wyoming.info import Describe
from wyoming_asked import asked

from boardvoice.cli.commands import run
from boardvoice.wyoming.settings import parse_address
from edge_runtime.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def serve(bundle: Path, *options: str, path: Path | None = None):
    folders = [str(ROOT)] if path is None else [str(path), str(ROOT)]
    return subprocess.run(
        [sys.executable, "-m", "boardvoice", "serve", str(bundle), "--port", "0", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        ("10200", {"port": 10200}),
        (":10200", {"port": 10200}),
        ("0.0.0.0:1", {"host": "0.0.0.0", "port": 1}),
        ("[::1]:5", {"host": "::1", "port": 5}),
        ("unix:/run/x", {"path": "/run/x"}),
    ],
)
def test_addresses(address, fields):
    assert parse_address(address) == fields


@pytest.mark.parametrize("address", ["", "voice/", "::1", "::1:5", "a:b", "1.2.3.4", "unix:"])
def test_what_is_no_address_is_told(address):
    with pytest.raises(UsageError):
        parse_address(address)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--wyoming", "0.0.0.0:0"), "--wyoming-open"),
        (("--wyoming", "0", "--zeroconf"), "--zeroconf"),
        (("--zeroconf",), "--wyoming"),
        (("--wyoming", "nothing/"), "BUNDLE"),
        (("--wyoming", "0", "--wyoming-languages", "English"), "en,de"),
        (("--wyoming", "0", "--wyoming-idle", "0"), "idle_s"),
    ],
)
def test_a_wrong_option_is_told(f32_bundle, capsys, options, said):
    assert run(["serve", str(f32_bundle), "--port", "0", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_extra_and_a_taken_port_are_told(f32_bundle, tmp_path):
    (tmp_path / "wyoming.py").write_text("raise ImportError('No module named wyoming')")
    done = serve(f32_bundle, "--wyoming", "0", path=tmp_path)
    assert done.returncode == 8
    assert "boardvoice[wyoming]" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = serve(f32_bundle, "--wyoming", str(other.getsockname()[1]))
    assert done.returncode == 11
    assert "--wyoming" in done.stderr
    assert serve(f32_bundle, "--wyoming", f"unix:{tmp_path}").returncode == 11


def test_other_machines_are_let_in_only_when_told_and_it_is_logged(f32_bundle):
    with asked(f32_bundle, "--wyoming-open", address="0.0.0.0:0") as one:
        assert any("no token" in line for line in one.server.log_lines)
        assert one.answers(Describe().event(), last="info")


def test_a_unix_socket_is_made_and_taken_away(f32_bundle, tmp_path):
    path = tmp_path / "voice"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with asked(f32_bundle, address=f"unix:{path}") as one:
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert one.answers(Describe().event(), last="info")
        assert serve(f32_bundle, "--wyoming", f"unix:{path}").returncode == 11
        assert one.server.stop()[0] == 0
    assert not path.exists()


def test_an_announcement_is_found():
    if importlib.util.find_spec("zeroconf") is None:
        pytest.skip("zeroconf is not installed")
    import asyncio

    from zeroconf import IPVersion, ServiceStateChange
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

    from boardvoice.wyoming.announcement import SERVICE, announcement

    async def look() -> tuple[str, str, int | None]:
        async with announcement(["127.0.0.1"], 10200) as name:
            found = asyncio.Event()

            def changed(name: str, state_change: ServiceStateChange, **_: object) -> None:
                if state_change is ServiceStateChange.Added:
                    names.append(name)
                    found.set()

            names: list[str] = []
            other = AsyncZeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)
            try:
                AsyncServiceBrowser(other.zeroconf, SERVICE, handlers=[changed])
                await asyncio.wait_for(found.wait(), 20)
                info = AsyncServiceInfo(SERVICE, names[0])
                assert await info.async_request(other.zeroconf, 5000)
                return name, names[0], info.port
            finally:
                await other.async_close()

    name, seen, port = asyncio.run(look())
    assert seen == name
    assert port == 10200
