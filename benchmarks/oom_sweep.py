"""Speaks under real memory limits while a neighbour takes memory away. Prints a Markdown table.

    python benchmarks/oom_sweep.py --bundle BUNDLE [--limits 192M,256M,...] [--max-len 5]
        [--done FILE] [--most N]

Every run must end with the right audio or with a typed refusal and no file, and the kernel must
have killed nobody. Exit status 0 when all do, 1 otherwise, 77 where no cgroup can be made.
Bundle and prepared files are dropped from the page cache before every run, so that their pages
are charged to the run's own cgroup.

With --done, finished runs are noted in FILE and not repeated; with --most, so many are made and
the others left to the next call (exit status 75). The table has all of FILE.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_cgroup import MemoryCgroup, NoCgroupError, memory_cgroup

from edge_runtime.loader import parse_size
from edge_runtime.state_folder import state_folder

SKIPPED = 77
UNFINISHED = 75
_MIB = 1 << 20
_REFUSALS = {7: "refused (capacity)", 12: "refused (memory)"}
_LIMITS = "192M,256M,320M,384M,512M,768M,1G,2G,4G,6G"
_HEADINGS = (
    "limit", "text", "reference", "neighbour", "prepared", "outcome", "peak RssAnon MiB", "s"
)  # fmt: skip
_TEXTS = {
    "short": "Now serving number forty two.",
    "long": " ".join(
        f"Ticket number {number}, please go to counter {number % 9 + 1}." for number in range(12)
    ),
}
# Takes memory in small steps, and leaves what a careful program needs to notice it.
_NEIGHBOUR = """
import sys, time
limit, share, folder, version = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
def used():
    stat = dict(line.split() for line in open(folder + "/memory.stat"))
    if version == "1":
        cache, shared = int(stat["total_cache"]), int(stat["total_shmem"])
        return int(open(folder + "/memory.usage_in_bytes").read()) - cache + shared
    return int(open(folder + "/memory.current").read()) - int(stat["file"]) + int(stat["shmem"])
held = []
end = time.monotonic() + float(sys.argv[5])
while time.monotonic() < end:
    if sum(map(len, held)) < limit * share and used() < limit - (48 << 20):
        held.append(bytearray(4 << 20))
    time.sleep(0.05)
"""


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        kind: ``cgroup`` or ``RLIMIT_AS``.
        limit: Bytes.
        text: Name of the text.
        reference: Whether it clones a voice.
        neighbour: Whether another process takes memory away meanwhile.
        prepared: ``yes`` when prepared weights are there already, ``first load`` when they are
            to be made, ``no`` when the bundle runs as it is.
    """

    kind: str
    limit: int
    text: str
    reference: bool
    neighbour: bool
    prepared: str = "yes"


def main() -> int:
    """Run all cases; see the file header for the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--limits", default=_LIMITS)
    parser.add_argument("--max-len", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="Euler steps of the flow")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--both", default="512M", help="up to here with and without a neighbour")
    parser.add_argument("--unprepared", default="1G,2G,3G,4G,6G", help="limits to try unprepared")
    parser.add_argument("--address-space", default="2G,6G,8G,16G", help="RLIMIT_AS to try")
    parser.add_argument("--force-prepare", action="store_true", help="prepare small bundles too")
    parser.add_argument("--done", type=Path, help="file that notes finished runs")
    parser.add_argument("--most", type=int, help="most runs to make now")
    arguments = parser.parse_args()
    try:
        with memory_cgroup(1 << 30):
            pass
    except NoCgroupError as error:
        print(f"skipped: {error}")
        return SKIPPED
    done = Done(arguments.done)
    wanted = list(cases(arguments))
    left = [case for case in wanted if done.get(case) is None]
    with tempfile.TemporaryDirectory() as scratch:
        sweep = Sweep(arguments, Path(scratch), done)
        for case in left[: arguments.most]:
            sweep.run(case)
    if arguments.most is not None and len(left) > arguments.most:
        print(f"{len(left) - arguments.most} runs are left", file=sys.stderr)
        return UNFINISHED
    outcomes = [outcome for case in wanted if (outcome := done.get(case)) is not None]
    print(f"| {' | '.join(_HEADINGS)} |\n|{'---|' * len(_HEADINGS)}")
    for outcome in outcomes:
        print(f"| {' | '.join(outcome.cells)} |")
    failed = sum(not outcome.good for outcome in outcomes)
    kills = sum(outcome.kills for outcome in outcomes)
    print(f"\n{len(outcomes)} runs, {failed} failed, kernel kills: {kills}")
    return 1 if failed else 0


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """All cases that the command line asks for."""
    for limit in map(parse_size, arguments.limits.split(",")):
        for text in _TEXTS:
            for reference in (False, True):
                # The neighbour comes with every other case, so that each limit sees both.
                alternately = ((text == "long") ^ reference,)
                both = limit <= parse_size(arguments.both)
                for neighbour in (False, True) if both else alternately:
                    yield Case("cgroup", limit, text, reference, neighbour)
    for limit in map(parse_size, filter(None, arguments.unprepared.split(","))):
        for prepared in ("first load", "no"):
            yield Case("cgroup", limit, "short", True, False, prepared)
    for limit in map(parse_size, filter(None, arguments.address_space.split(","))):
        yield Case("RLIMIT_AS", limit, "short", True, False)
        yield Case("RLIMIT_AS", limit, "long", False, False)


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        cells: Its line of the table.
        good: Whether it ended as it must.
        kills: Processes that the kernel killed.
    """

    cells: list[str]
    good: bool
    kills: int


class Done:
    """Finished runs, and what they must sound like.

    Args:
        file: Where they are noted, one JSON line each; None for this call only.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._entries: dict[str, Any] = {}
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                key, value = json.loads(line)
                self._entries[key] = value

    def get(self, case: Case) -> Outcome | None:
        """How a case ended, if it was run."""
        found = self._entries.get(repr(case))
        return None if found is None else Outcome(**found)

    def expected(self, text: str, reference: bool) -> str | None:
        """SHA-256 of the audio without a limit, if it is known."""
        return self._entries.get(f"{text} {reference}")

    def note(self, key: str, value: Any) -> None:
        """Add an entry."""
        self._entries[key] = value
        if self._file is not None:
            with self._file.open("a") as stream:
                stream.write(json.dumps([key, value]) + "\n")


class Sweep:
    """Runs cases and judges them.

    Args:
        arguments: The command line.
        scratch: Folder for sound files and empty state folders.
        done: Takes outcomes.
    """

    def __init__(self, arguments: argparse.Namespace, scratch: Path, done: Done) -> None:
        self._arguments = arguments
        self._scratch = scratch
        self._done = done
        self._reference = scratch / "reference.wav"
        _write_tone(self._reference)

    def run(self, case: Case) -> None:
        """Run one case and note how it ended."""
        expected = self._expected_audio(case)
        out = self._scratch / "out.wav"
        out.unlink(missing_ok=True)
        _drop_page_cache(state_folder())
        _drop_page_cache(self._arguments.bundle)
        start = time.monotonic()
        if case.kind == "cgroup":
            with memory_cgroup(case.limit) as group:
                code, metrics = self._speak(case, out, group)
                kills = group.oom_kills()
        else:
            (code, metrics), kills = self._speak(case, out, None), 0
        wall = time.monotonic() - start
        written = sorted(name for name in os.listdir(self._scratch) if "out.wav" in name)
        if code == 0 and written == ["out.wav"] and _digest(out) == expected:
            outcome, good = "right audio", kills == 0
        elif code in _REFUSALS and not written:
            outcome, good = _REFUSALS[code], kills == 0
        else:
            wrong = metrics.get("error") or "another sound"
            outcome, good = f"FAILED: exit {code}, {wrong}, files {written}", False
        if kills:
            outcome += f", {kills} killed"
        peak = metrics.get("peak_rss_anon_bytes", 0) / _MIB
        name = f"{case.limit // _MIB} MiB" + ("" if case.kind == "cgroup" else f" {case.kind}")
        cells = (
            name, case.text, _yes(case.reference), _yes(case.neighbour), case.prepared,
            outcome, f"{peak:.0f}" if peak else "", f"{wall:.0f}",
        )  # fmt: skip
        print(" | ".join(cells), file=sys.stderr, flush=True)
        self._done.note(repr(case), {"cells": cells, "good": good, "kills": kills})

    def _expected_audio(self, case: Case) -> str:
        expected = self._done.expected(case.text, case.reference)
        if expected is None:
            out = self._scratch / "expected.wav"
            plain = Case("none", 0, case.text, case.reference, neighbour=False)
            code, metrics = self._speak(plain, out, None)
            if code:
                raise SystemExit(f"the run without a limit failed: exit {code}, {metrics}")
            expected = _digest(out)
            self._done.note(f"{case.text} {case.reference}", expected)
        return expected

    def _speak(
        self, case: Case, out: Path, group: MemoryCgroup | None
    ) -> tuple[int, dict[str, object]]:
        command = [
            sys.executable, "-m", "boardvoice", "say", _TEXTS[case.text],
            "--bundle", str(self._arguments.bundle), "-o", str(out), "--seed", "1", "--json",
            "--max-len", str(self._arguments.max_len), "--steps", str(self._arguments.steps),
            "--no-retry-badcase", "--chunk-rows", "240",
        ]  # fmt: skip
        if case.reference:
            command += ["--reference", str(self._reference)]
        if case.prepared == "no":
            command += ["--no-prepare"]
        elif self._arguments.force_prepare:
            command += ["--prepare"]
        environment = dict(os.environ)
        state = None
        if case.prepared == "first load":
            state = environment["BOARDVOICE_STATE"] = tempfile.mkdtemp(dir=self._scratch)

        def confine() -> None:
            if group is not None:
                group.join()
            if case.kind == "RLIMIT_AS":
                resource.setrlimit(resource.RLIMIT_AS, (case.limit, case.limit))

        neighbour = None
        if case.neighbour and group is not None:
            seconds = str(self._arguments.timeout)
            neighbour = subprocess.Popen(
                [sys.executable, "-c", _NEIGHBOUR, str(case.limit), "0.35", str(group.folder),
                 str(group.version), seconds],
                preexec_fn=group.join,  # noqa: PLW1509 - this process has no threads
            )  # fmt: skip
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, env=environment,
                preexec_fn=confine,
                timeout=self._arguments.timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, {"error": "timed out"}
        finally:
            if neighbour is not None:
                neighbour.kill()
                neighbour.wait()
            if state is not None:
                shutil.rmtree(state)
        try:
            return done.returncode, json.loads(done.stdout)
        except json.JSONDecodeError:
            return done.returncode, {"error": done.stderr[-300:]}


def _drop_page_cache(folder: Path) -> None:
    """Forget the prepared files' pages: whoever reads them next is charged for them."""
    files = (file for file in folder.rglob("*") if file.suffix in (".weights", ".bin"))
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _write_tone(path: Path) -> None:
    import numpy as np
    import soundfile

    time_s = np.arange(16000) / 16000
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * 220 * time_s) * np.hanning(16000), 16000)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _yes(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    sys.exit(main())
