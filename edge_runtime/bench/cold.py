"""A fresh process that loads a bundle and speaks, with the bundle's files dropped from memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from device_profiles.schema import Profile
from edge_runtime.bench.results import Cold
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BackendError
from edge_runtime.loader import LoadOptions
from edge_runtime.memory.disk_reads import disk_read_bytes
from edge_runtime.speech import SpeechOptions
from edge_runtime.state_folder import state_folder

# It imports from where this process does, whatever folder it starts in.
_START = """
import sys
sys.path[:] = sys.argv[1:]
from edge_runtime.bench.cold import main
sys.exit(main())
"""
_NOT_SENT = ("backend", "on_prepare", "profile", "runtime")


def cold_run(
    folder: str | Path, load: LoadOptions, text: str, reference: str | None, options: SpeechOptions
) -> Cold:
    """Measure it.

    Args:
        folder: The bundle; nobody else should have it loaded: mapped pages stay in memory.
        load: How to load it. Another back end cannot be sent to another process.
        text: What to say.
        reference: Audio of a voice, or None.
        options: How to speak.

    Raises:
        BackendError: The process failed.
    """
    bundle = Bundle.open(folder, verify=False)
    drop_from_memory(bundle.folder / name for name in bundle.manifest.files)
    drop_from_memory(state_folder().glob("prepared/*/*"))
    profile = load.profile
    settings = {name: value for name, value in vars(load).items() if name not in _NOT_SENT}
    request = {
        "bundle": str(Path(folder).resolve()),
        "load": settings,
        # Only what was set: a profile that says how to run overrules tuning.
        "profile": profile.model_dump(mode="json", exclude_unset=True)
        if isinstance(profile, Profile)
        else profile,
        "text": text,
        "reference": reference,
        "options": asdict(options),
        # The same clock in every process.
        "started": time.monotonic(),
    }
    done = subprocess.run(
        [sys.executable, "-c", _START, *sys.path],
        input=json.dumps(request), capture_output=True, text=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise BackendError(
            f"The process of the cold run failed: {last}.", remedy="Leave it out with --no-cold."
        )
    return Cold.model_validate_json(done.stdout.strip().splitlines()[-1])


def main() -> int:
    """The fresh process: one JSON request on stdin, one line of figures on stdout."""
    from edge_runtime.voice import Voice

    imported = time.monotonic()
    request = json.load(sys.stdin)
    profile = request["profile"]
    if isinstance(profile, dict):
        profile = Profile.model_validate_json(json.dumps(profile))
    read_before = disk_read_bytes()
    voice = Voice.load(request["bundle"], profile=profile, **request["load"])
    loaded = time.monotonic()
    options = SpeechOptions(**request["options"])
    with voice.stream(request["text"], reference=request["reference"], options=options) as stream:
        next(stream)
        heard = time.monotonic()
    read = disk_read_bytes()
    figures = Cold(
        import_ms=round((imported - request["started"]) * 1000, 1),
        load_ms=round((loaded - imported) * 1000, 1),
        first_audio_ms=round((heard - loaded) * 1000, 1),
        start_to_audio_ms=round((heard - request["started"]) * 1000, 1),
        disk_read_mb=None if read is None else round((read - (read_before or 0)) / 1e6, 1),
    )
    sys.stdout.write(f"\n{figures.model_dump_json()}\n")
    return 0


def drop_from_memory(files: Iterable[Path]) -> None:
    """Ask the kernel to forget clean pages of files; what others have mapped stays."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in files:
        try:
            fd = os.open(file, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
