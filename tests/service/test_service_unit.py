"""The unit's text, and what systemd's own parser makes of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from boardvoice.service.memory_bounds import MemoryBounds, memory_bounds
from boardvoice.service.unit import ServicePlan, unit_text
from boardvoice.service.unit_text import command_line, rest_of_line, word
from device_profiles.catalog import load_profile
from device_profiles.schema import MemorySection
from edge_runtime.errors import UsageError

MIB = 1 << 20
NASTY = "we ird/a\"b\\c%d:e'f$HOME;g"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here"
)


def plan(**changes) -> ServicePlan:
    base = ServicePlan(
        name="boardvoice",
        command=(sys.executable, "-m", "boardvoice", "serve", "/srv/voice"),
        bundle=Path("/srv/voice"),
        profile=load_profile("generic-x86-64"),
        reasons=("asked for",),
        bounds=MemoryBounds(300 * MIB, 364 * MIB),
        groups=("audio",),
    )
    return replace(base, **changes)


def settings(text: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


def analyzed(unit: Path, *command: str, level: str = "info") -> subprocess.CompletedProcess[str]:
    runtime = {"XDG_RUNTIME_DIR": str(unit.parent), "HOME": str(unit.parent)}
    return subprocess.run(
        ["systemd-analyze", *command, str(unit)],
        env={"SYSTEMD_LOG_LEVEL": level, "PATH": "/usr/bin:/bin", "LC_ALL": "C", **runtime},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


PLANS = {
    "cpu": {},
    "lan": {"loopback": False, "token_file": Path("/etc/boardvoice/token")},
    "npu": {"profile": load_profile("orange-pi-5")},
    "gpu": {"profile": load_profile("jetson-orin-nano-8gb"), "groups": ("audio", "video")},
    "disk": {"state": Path("/srv/state"), "owner": "daemon"},
    "own": {"user_scope": True},
}


@needs_systemd
@pytest.mark.parametrize("kind", PLANS)
def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path, kind):
    unit = tmp_path / "boardvoice.service"
    unit.write_text(unit_text(plan(**PLANS[kind], systemd=250)))
    verified = analyzed(unit, "verify", "--man=no", *(["--user"] if kind == "own" else []))
    assert verified.returncode == 0, verified.stderr
    complaints = [line for line in verified.stderr.splitlines() if f"{unit}:" in line]
    assert complaints == []
    if kind != "own":
        rated = analyzed(unit, "security", "--offline=true", "--no-pager")
        if "Unknown" in rated.stderr or "unrecognized" in rated.stderr:
            pytest.skip("this systemd-analyze rates no files")
        score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", rated.stdout)
        assert score is not None, rated.stderr
        assert float(score[1]) <= 2.0


@needs_systemd
def test_paths_with_every_odd_character_arrive_as_they_are(tmp_path):
    odd = tmp_path / NASTY
    program = tmp_path / "b in%n" / "py$t"
    program.parent.mkdir()
    program.symlink_to("/bin/true")
    unit = tmp_path / "odd.service"
    unit.write_text(
        unit_text(
            plan(
                command=(str(program), "serve", str(odd), ";", "${HOME}"), bundle=odd,
                shown=(odd, Path("/x")), token_file=odd, state=odd, owner="daemon",
            )
        )
    )  # fmt: skip
    # At this level it prints what it read.
    done = analyzed(unit, "verify", "--man=no", level="debug")
    assert done.returncode == 0, done.stderr
    read = done.stdout
    assert f"RequiresMountsFor: {odd} " in read
    assert f"Environment: BOARDVOICE_STATE={odd}\n" in read
    assert f"{odd}:{odd}:rbind" in read
    quoted = str(odd).replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    (line,) = [line for line in read.splitlines() if "Command Line:" in line]
    assert f'"{quoted}"' in line
    assert str(program.parent) in line


def test_what_no_unit_can_hold_is_refused():
    for bad in ("a\nb", "a\x00b", "\udcff"):
        with pytest.raises(UsageError):
            word(bad)
    for bad in ("/token ", "/token\\"):
        with pytest.raises(UsageError):
            rest_of_line(bad)
    with pytest.raises(UsageError):
        command_line(['/opt/a"b/python'])
    assert word("") == '""'
    with pytest.raises(UsageError):
        unit_text(plan(bundle=Path("/srv/voice\n[Service]\nExecStart=/bin/sh")))


def test_the_service_is_told_apart_by_what_the_profile_has():
    cpu = unit_text(plan())
    assert settings(cpu, "DeviceAllow") == ["char-alsa rw"]
    assert settings(cpu, "MemoryDenyWriteExecute") == ["yes"]
    assert settings(cpu, "IPAddressDeny") == ["any"]
    npu = unit_text(plan(profile=load_profile("orange-pi-5")))
    assert "char-drm rw" in settings(npu, "DeviceAllow")
    assert settings(npu, "MemoryDenyWriteExecute") == ["no"]
    gpu = unit_text(plan(profile=load_profile("jetson-orin-nano-8gb")))
    assert "char-nvidia* rw" in settings(gpu, "DeviceAllow")
    lan = unit_text(plan(loopback=False))
    assert settings(lan, "IPAddressDeny") == []
    assert settings(lan, "After") == ["sound.target network-online.target"]


def test_it_starts_again_unless_somebody_has_to_see_to_it():
    new, old = unit_text(plan(systemd=254)), unit_text(plan(systemd=249))
    assert settings(new, "Restart") == ["on-failure"]
    assert settings(new, "RestartPreventExitStatus") == ["2 4 5 6 8 9"]
    assert settings(new, "RestartMaxDelaySec") == ["60"]
    # An older one would complain of what it does not know.
    assert settings(old, "RestartSteps") == []
    assert settings(old, "RestartSec") == ["15"]


def test_a_folder_of_ones_own_is_all_that_is_written():
    text = unit_text(plan(state=Path("/data/bv"), owner="kiosk"))
    assert settings(text, "User") == ["kiosk"]
    assert settings(text, "DynamicUser") == []
    assert settings(text, "StateDirectory") == []
    assert settings(text, "ReadWritePaths") == ["/data/bv"]
    assert '"BOARDVOICE_STATE=/data/bv"' in settings(text, "Environment")
    assert "/data/bv" in settings(text, "RequiresMountsFor")[0].split()


def test_memory_bounds_leave_room_for_mapped_weights_and_for_others():
    section = MemorySection(hard_mib=600, soft_mib=400, reserve_mib=256)
    bounds = memory_bounds(section, weights=1000 * MIB, total=8000 * MIB, hard=None, soft=None)
    assert bounds == MemoryBounds(2400 * MIB, 2600 * MIB)
    small = memory_bounds(section, weights=1000 * MIB, total=2000 * MIB, hard=None, soft=None)
    assert small is not None
    assert small.most == (2000 - 256) * MIB
    assert small.high < small.most
    own = memory_bounds(section, weights=0, total=8000 * MIB, hard=300 * MIB, soft=None)
    assert own is not None
    assert own.most == 300 * MIB
    assert memory_bounds(MemorySection(), weights=1, total=0, hard=None, soft=None) is None


def test_a_bound_of_the_machine_is_its_memory_less_the_reserve():
    bounds = memory_bounds(
        MemorySection(reserve_mib=256), weights=9, total=4000 * MIB, hard=None, soft=None
    )
    assert bounds is not None
    assert bounds.most == (4000 - 256) * MIB
