"""The server on a read-only system with one folder to write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from served import ROOT, Served

# A mount namespace of its own, so nothing changes outside.
READ_ONLY = """
set -e
mount --make-rprivate /
mount --bind "$BOARDVOICE_STATE" "$BOARDVOICE_STATE"
mount -o remount,bind,ro /
if touch "$1" 2>/dev/null; then echo "still writable" >&2; exit 99; fi
shift
exec "$@"
"""


def test_it_speaks_from_a_read_only_root(tmp_path: Path, f32_bundle: Path) -> None:
    pytest.importorskip("uvicorn")
    state = tmp_path / "state"
    state.mkdir()
    tried = subprocess.run(
        ["unshare", "--mount", "true"] if shutil.which("unshare") else ["false"],
        check=False, capture_output=True,
    )  # fmt: skip
    if tried.returncode:
        pytest.skip("no mount namespace can be made here")
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "BOARDVOICE_STATE": str(state),
        "XDG_CACHE_HOME": str(state / "cache"), "HOME": str(state),
    }  # fmt: skip
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(tmp_path / "probe"),
         sys.executable, "-m", "boardvoice", "serve", str(f32_bundle), "--port", "0",
         "--threads", "1", "--prepare"],
        env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        log = ""
        while "ready" not in log:
            line = process.stderr.readline()
            assert line, log
            if "permission denied" in line.lower() and "mount" in line:
                pytest.skip("nothing can be mounted here")
            log += line
        server = Served(process, int(log.split("http://127.0.0.1:")[1].split()[0]))
        status, _, audio = server.speak()
        assert status == 200
        assert audio.startswith(b"RIFF")
        assert list(state.glob("prepared/*"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
