"""Whether the server needs anything that its unit forbids: `python benchmarks/service_sandbox.py`.

Runs the server under strace, as the unit's `MemoryDenyWriteExecute` where the kernel knows it
(6.3), has it prepare, load and speak, and compares the system calls with the unit's filter.
Needs strace and systemd-analyze; systemd does not have to run.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from boardvoice.default_bundle import default_bundle
from boardvoice.service import sandbox
from device_profiles.catalog import load_profile

PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
SECONDS = 60


def filtered() -> set[str]:
    """Names of the system calls that the unit's lines allow, in their order."""
    allowed: set[str] = set()
    for key, value in sandbox.everywhere(load_profile("generic-x86-64")):
        if key == "SystemCallFilter":
            names = {
                name for group in value.removeprefix("~").split() for name in expanded(group)
            }
            allowed = allowed - names if value.startswith("~") else allowed | names
    return allowed


def expanded(group: str) -> set[str]:
    """System calls of a group of systemd's."""
    if not group.startswith("@"):
        return {group}
    text = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
    ).stdout
    listed = [line.strip() for line in text.splitlines()[1:]]
    return {
        name for line in listed if line and not line.startswith("#") for name in expanded(line)
    }


def deny_write_execute() -> None:
    """In the child: as the unit has it, where the kernel can."""
    ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)


def can_deny() -> bool:
    """Tried in a child, since it cannot be taken back."""
    code = f"import ctypes; print(ctypes.CDLL(None).prctl({PR_SET_MDWE}, 1, 0, 0, 0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "0"


def spoken(url: str) -> int:
    """Bytes of one answer."""
    body = {"input": "Now serving number forty two.", "response_format": "wav"}
    request = urllib.request.Request(
        f"{url}/v1/audio/speech", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return len(answer.read())


def traced(bundle: Path, folder: Path, refused: list[str]) -> set[str]:
    """System calls that were made, with those of all threads and children.

    Args:
        bundle: What is served.
        folder: For state and trace.
        refused: System calls that fail as the unit's filter has them fail.
    """
    folder.mkdir()
    trace = folder / "trace"
    inject = [f"--inject={','.join(refused)}:error=EPERM"] if refused else []
    server = subprocess.Popen(
        ["strace", "-f", "-qq", *inject, "-o", str(trace), sys.executable, "-m", "boardvoice",
         "serve", str(bundle), "--port", "0", "--prepare"],
        env={**os.environ, "BOARDVOICE_STATE": str(folder / "state")},
        stderr=subprocess.PIPE, text=True, preexec_fn=deny_write_execute,  # noqa: PLW1509
    )  # fmt: skip
    try:
        assert server.stderr is not None
        url = ""
        for line in server.stderr:
            url = line.split()[-1] if "listening on" in line else url
            if "ready" in line:
                break
        print(f"spoke {spoken(url)} bytes of wav")
    finally:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        for child in map(int, children):
            os.kill(child, signal.SIGTERM)
        server.wait(SECONDS)
    print(f"ended with {server.returncode}")
    return set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(errors="replace"), re.MULTILINE))


def main() -> None:
    """Compare, and say what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path)
    bundle = parser.parse_args().bundle or default_bundle()
    print(f"MemoryDenyWriteExecute in force: {'yes' if can_deny() else 'no, the kernel is older'}")
    with tempfile.TemporaryDirectory() as folder:
        called = traced(bundle, Path(folder, "free"), [])
        missing = sorted(called - filtered())
        print(f"{len(called)} system calls, outside the filter: {', '.join(missing) or 'none'}")
        if missing:
            print("again, with those refused:")
            traced(bundle, Path(folder, "refused"), missing)


if __name__ == "__main__":
    main()
