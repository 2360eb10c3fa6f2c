"""`boardvoice service`: what it writes, asks of systemctl, and refuses."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from boardvoice.cli.commands import run
from boardvoice.service.installation import Installation
from boardvoice.service.needed import below_covered, require_readable
from boardvoice.service.systemctl import Systemctl
from boardvoice.service.unit import MARK
from edge_runtime.errors import ServiceError, UsageError

OPTIONS = ("--port", "0", "--queue", "2", "--no-verify")
# Notes what it is asked, and fails at what a file names.
STAND_IN = """#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/asked"
case "$*" in *--version*) echo "systemd 255 (255.4)"; exit 0;; esac
for word in "$@"; do
    if [ -e "$here/fail-$word" ]; then echo "Failed to $word: no." >&2; exit 1; fi
done
case "$*" in *show*) cat "$here/shown" 2>/dev/null || true;; esac
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text(STAND_IN)
    (folder / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def service(capsys):
    def call(*words: str) -> Done:
        code = run(["service", *words])
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    return call


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_a_service_of_ones_own_from_install_to_removal(stand_in, service, tmp_path, f32_bundle):
    unit = tmp_path / "config/systemd/user/kiosk.service"
    done = service("install", str(f32_bundle), "--user", "--name", "kiosk", *OPTIONS)
    assert done.returncode == 0, done.stderr
    text = unit.read_text()
    assert text.startswith(MARK)
    assert f"serve {f32_bundle} --port 0 --queue 2 --no-verify\n" in text
    assert stat.S_IMODE(unit.stat().st_mode) == 0o644
    assert [file.name for file in unit.parent.iterdir()] == ["kiosk.service"]
    assert "--user enable kiosk.service" in asked(stand_in)
    (stand_in / "shown").write_text("ActiveState=active\nStatusText=tiny: ready.\n")
    told = service("status", "--user", "--name", "kiosk", "--json")
    assert told.returncode == 0
    assert json.loads(told.stdout)["StatusText"] == "tiny: ready."
    (stand_in / "shown").write_text("ActiveState=failed\nResult=exit-code\n")
    assert service("status", "--user", "--name", "kiosk").returncode == 16
    gone = service("uninstall", "--user", "--name", "kiosk")
    assert gone.returncode == 0, gone.stderr
    assert not unit.exists()
    assert service("uninstall", "--user", "--name", "kiosk").returncode == 16


def test_a_dry_run_changes_nothing(stand_in, service, tmp_path, f32_bundle):
    done = service("install", str(f32_bundle), "--dry-run", "--profile", "orange-pi-5")
    assert done.returncode == 0, done.stderr
    assert "DeviceAllow=char-drm rw" in done.stdout
    assert "RestartMaxDelaySec=60" in done.stdout
    assert set(asked(stand_in)) == {"--version"}
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--no-such-option"], 2),
        (["--queue", "-1"], 2),
        (["--host", "0.0.0.0"], 2),
        (["--token-file", "/nowhere/token"], 2),
        (["--profile", "no-such-board"], 9),
        (["--name", "../evil"], 2),
        (["--state", "/nowhere"], 2),
    ],
)
def test_what_the_server_would_refuse_is_refused_now(stand_in, service, f32_bundle, words, code):
    done = service("install", str(f32_bundle), "--dry-run", *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_bundle_that_is_none_is_refused(stand_in, service, tmp_path):
    assert service("install", str(tmp_path), "--user").returncode == 5
    assert not (tmp_path / "config").exists()


def test_what_systemd_refuses_leaves_what_was_there(stand_in, tmp_path):
    place = Installation("kiosk", tmp_path / "units", Systemctl(user=True))
    place.install(f"{MARK}\n# first\n", start=False)
    (stand_in / "fail-enable").touch()
    with pytest.raises(ServiceError, match="enable"):
        place.install(f"{MARK}\n# second\n", start=False)
    assert "# first" in place.file.read_text()
    other = Installation("other", tmp_path / "units", Systemctl(user=True))
    with pytest.raises(ServiceError):
        other.install(MARK, start=False)
    assert not other.file.exists()


def test_a_unit_of_somebody_else_stays(stand_in, tmp_path):
    place = Installation("sshd", tmp_path, Systemctl(user=True))
    place.file.write_text("[Unit]\n")
    for act in (lambda: place.install(MARK, start=False), lambda: place.uninstall(purge=True)):
        with pytest.raises(ServiceError, match="not written by boardvoice"):
            act()
    assert place.file.read_text() == "[Unit]\n"


def test_without_root_it_says_what_to_do(stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    place = Installation("kiosk", tmp_path, Systemctl(user=False))
    with pytest.raises(ServiceError, match="--user"):
        place.install(MARK, start=False)


def test_without_systemctl_it_says_so(service, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    done = service("install", "--user")
    assert done.returncode == 8, done.stderr
    assert "--dry-run" in done.stderr
    assert list((tmp_path / "config").rglob("*.service")) == []


def test_what_the_services_user_may_not_read_is_named(tmp_path):
    outside = Path("/var/lib") if os.access("/var/lib", os.W_OK) else None
    folder = tmp_path / "voice"
    folder.mkdir(mode=0o755)
    (folder / "a").write_text("x")
    (folder / "a").chmod(0o600)
    with pytest.raises(ServiceError, match="chmod"):
        require_readable([folder], uid=None)
    (folder / "a").chmod(0o644)
    if below_covered([tmp_path]):
        # Folders on the way below a covered one are made anew, so their rights do not matter.
        require_readable([folder], uid=None)
    require_readable([folder], uid=0)
    with pytest.raises(ServiceError):
        require_readable([tmp_path / "nothing"], uid=None)
    assert below_covered([Path("/home/a/voice"), Path("/srv/voice"), Path("/home/a")]) == [
        Path("/home/a")
    ]
    assert outside is None or below_covered([outside]) == []


def test_names_are_names():
    for name in ("", "a/b", "a b", "-x", "a" * 80):
        with pytest.raises(UsageError):
            Installation.of(name, user=True)
