"""The aarch64 wheel of rknn-toolkit-lite2 under qemu-user, against a stand-in for librknnrt.so.

    python benchmarks/rknn_lite_qemu.py --work FOLDER [--only run get] [--write PAGE]

Speaks a tiny bundle with `boardvoice say` on an emulated RK3588, once as it is meant to be and once
with every fault that the library can show, and prints a table of what came of it. The stand-in
(tests/npu/standin/librknnrt.c) has the calls of the real library; what the NPU would compute, ONNX
Runtime computes outside of qemu.

Needs qemu-aarch64 and aarch64-linux-gnu-gcc (Debian: qemu-user gcc-aarch64-linux-gnu
libc6-dev-arm64-cross), apt-get and pip. Python for arm64 and the wheels are downloaded to --work
once, about 150 MB.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

ROOT = Path(__file__).resolve().parents[1]
LITE = "rknn-toolkit-lite2==2.5.0"
ABI = "311"
DEBS = (
    "libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0",
    "liblzma5", "libsqlite3-0", "libuuid1", "python3.11-minimal", "libpython3.11-minimal",
    "libpython3.11-stdlib", "python3.11",
)  # fmt: skip
WHEELS = (
    "numpy<2.3", "onnxruntime==1.32.0", "psutil", "pydantic", "pyyaml", "rich", "soundfile", "soxr",
    "tokenizers", "safetensors", "ml_dtypes", "onnx",
)  # fmt: skip
BOARD = ROOT / "tests/boards/trees/orange-pi-5-vendor"
BOARD_PROFILE = "orange-pi-5"
LIBRARY, DEVICE = "usr/lib/librknnrt.so", "dev/dri/renderD129"
TEXT, PATCHES, EVALUATIONS = "One, two.", 3, 9
# Runs before the first patch: two golden ones, then one and five that are timed.
BEFORE = 8
MIDDLE = BEFORE + EVALUATIONS + 5


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        name: What goes wrong.
        reason: What the result must say; empty where the NPU is to be used to the end.
        fault: The stand-in's.
        environment: Further variables.
        library: How the stand-in is compiled; None leaves it out.
        device: Whether the NPU's device is there.
        package: Whether the wheel is.
        cores: NPU cores that the profile asks for.
        evaluations: Evaluations that the NPU must have made.
    """

    name: str
    reason: str
    fault: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    library: tuple[str, ...] | None = ()
    device: bool = True
    package: bool = True
    cores: str = "auto"
    evaluations: int = 0


ALL = PATCHES * EVALUATIONS
CASES = (
    Case("nothing", "", evaluations=ALL),
    Case("nothing, on all three cores", "", cores="0_1_2", evaluations=ALL),
    Case("the package is not installed", "no-package", package=False),
    Case("librknnrt.so is missing", "no-library", library=None),
    Case("librknnrt.so is 2.3.2", "old-library", library=('-DVERSION="2.3.2"',)),
    Case("librknnrt 2.3.2, told by the context alone", "old-library",
         environment={"RKNN_STANDIN_VERSION": "2.3.2"}),
    Case("librknnrt lacks a call of the package", "init", library=("-DOLD_LIBRARY",)),
    Case("driver 0.8.2, told by the context alone", "old-driver",
         environment={"RKNN_STANDIN_DRIVER": "0.8.2"}),
    Case("container without /dev/dri/renderD129", "init", device=False),
    Case("rknn_init fails", "init", "init"),
    Case("rknn_set_core_mask fails", "core-mask", "core", cores="0"),
    Case("rknn_query of ports fails", "run", "attr"),
    *(
        Case(f"{call} {'in mid-sentence' if at else 'from the first run on'}", reason,
             f"{fault}@{MIDDLE}" if at else fault, evaluations=at)
        for at in (0, EVALUATIONS + 4)
        for call, fault, reason in (
            ("rknn_inputs_set fails", "set", "run"), ("rknn_run fails", "run", "run"),
            ("rknn_outputs_get fails", "get", "run"), ("NaN", "nan", "not-finite"),
            ("65504", "big", "range"), ("zeros only", "zeros", "zeros"),
            ("rknn_run hangs", "hang", "timeout"),
        )
    ),
)  # fmt: skip


def main() -> None:
    """Set up, run every case, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps downloads")
    parser.add_argument("--only", nargs="*", default=[], help="faults or reasons to run alone")
    parser.add_argument("--write", type=Path, help="put the table into this page")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    board = Emulated(work)
    board.set_up()
    lines, failed = [], []
    for case in CASES:
        if arguments.only and not {case.fault.partition("@")[0], case.reason} & {*arguments.only}:
            continue
        line, good = board.try_case(case)
        print(line, flush=True)
        lines.append(line)
        failed += [] if good else [case.name]
    head = (
        "| what goes wrong | ends with | NPU | CPU | SNR to the CPU's, dB | told | s |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    table = head + "".join(f"{line}\n" for line in lines)
    if arguments.write:
        _write(arguments.write, table)
    if failed:
        sys.exit(f"not as expected: {', '.join(failed)}")


class Emulated:
    """A board's files with an arm64 Python, and the bundle it speaks."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._root = work / "board"
        self._site, self._lite = self._root / "opt/site", self._root / "opt/lite"
        self._socket = work / "npu.sock"
        self._cpu: np.ndarray[Any, Any] | None = None

    def set_up(self) -> None:
        """Download and unpack what is not there yet; export the bundle and install this tree."""
        if not (self._root / "usr/bin/python3.11").exists():
            self._debian()
        if not self._lite.exists():
            self._wheels()
        shutil.copytree(BOARD, self._root, dirs_exist_ok=True)
        _run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade",
              "--target", str(self._site), str(ROOT)])  # fmt: skip
        helper = [str(ROOT), str(ROOT / "tests/helpers")]
        sys.path[:0] = helper
        from stand_in_npu import StandInNpu, add_npu_model

        from export.synthetic import RECIPES, make_checkpoint
        from export.voxcpm2.exporter import export_voxcpm2

        made = self._work / "made"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        make_checkpoint(made / "checkpoint", RECIPES["tiny"])
        export_voxcpm2(made / "checkpoint", made / "plain", weights="f32", name="tiny")
        self._bundle = add_npu_model(made / "plain", made / "bundle")
        spec = json.loads((self._bundle / "npu/flow.json").read_text(encoding="utf-8"))
        self._sizes = spec["latent_dim"], spec["patch_size"], spec["hidden"]
        self._npu = StandInNpu(self._bundle / "graphs/flow.onnx")

    def try_case(self, case: Case) -> tuple[str, bool]:
        """Speak with a fault; a line of the table, and whether it ended as it should."""
        self._library(case)
        device = self._root / DEVICE
        device.parent.mkdir(parents=True, exist_ok=True)
        device.touch() if case.device else device.unlink(missing_ok=True)
        if self._cpu is None:
            self._cpu = self._speak(case, "cpu")[0]
        began = time.monotonic()
        with self._answering():
            audio, metrics = self._speak(case, "rknn")
        spent = time.monotonic() - began
        record = metrics["npu"]
        told = [note for note in metrics["warnings"] if "rknn" in note]
        alike = len(audio) == len(self._cpu)
        noise = float(np.linalg.norm(audio - self._cpu)) if alike else math.inf
        snr = 20 * math.log10(float(np.linalg.norm(self._cpu)) / noise) if noise else math.inf
        good = (
            record["reason"] == case.reason
            and record["in_use"] is not bool(case.reason)
            and record["evaluations"] == case.evaluations
            and record["evaluations"] + record["cpu_evaluations"]
            == (ALL if record["cpu_evaluations"] or not case.reason or case.evaluations else 0)
            and len(told) == bool(case.reason)
            and snr > 40
            and metrics["patches"] == PATCHES
        )
        words = told[0] if told else ""
        words = words.replace(str(self._bundle), "BUNDLE").replace("|", "/")
        cells = (
            case.name, record["reason"] or "spoken on the NPU", str(record["evaluations"]),
            str(ALL - record["evaluations"]), "equal" if math.isinf(snr) else f"{snr:.0f}", words,
            f"{spent:.0f}",
        )  # fmt: skip
        return f"| {' | '.join(cells)} |" + ("" if good else " NOT AS EXPECTED"), good

    def _speak(self, case: Case, place: str) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        latent, size, hidden = self._sizes
        out, profile = self._work / "out.wav", self._work / "emulated.yaml"
        profile.write_text(
            f"extends: {BOARD_PROFILE}\nname: emulated\ntitle: Emulated\n"
            f"flow: {{npu_cores: '{case.cores}'}}\n",
            encoding="utf-8",
        )
        site = f"{self._site}:{self._lite}" if case.package else str(self._site)
        environment = {
            **os.environ, "PYTHONPATH": site, "BOARDVOICE_STATE": str(self._work / "state"),
            "RKNN_STANDIN_SOCKET": str(self._socket), "RKNN_STANDIN_FAULT": case.fault,
            "RKNN_STANDIN_PORTS": f"in x 2 {latent} {size};in prefix 2 {hidden} {3 + size};"
            f"out velocity 2 {latent} {size}",
            **case.environment,
        }  # fmt: skip
        done = subprocess.run(
            [*self._python(), "-m", "boardvoice", "say", TEXT, "--bundle", str(self._bundle),
             "--profile", str(profile), "--flow", place, "--threads", "1", "--seed", "3",
             "--max-len", str(PATCHES),
             "--no-retry-badcase", "--json", "-o", str(out)],
            env=environment, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{case.name}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        metrics: dict[str, Any] = json.loads(done.stdout)
        return soundfile.read(out, dtype="float32")[0], metrics

    def _python(self) -> list[str]:
        binary = self._root / "usr/bin/python3.11"
        return ["qemu-aarch64", "-cpu", "cortex-a76", "-L", str(self._root), str(binary)]

    def _library(self, case: Case) -> None:
        library = self._root / LIBRARY
        library.unlink(missing_ok=True)
        if case.library is not None:
            source = ROOT / "tests/npu/standin/librknnrt.c"
            _run(["aarch64-linux-gnu-gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC",
                  *case.library, "-o", str(library), str(source)])  # fmt: skip

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Compute what the stand-in asks for."""
        self._socket.unlink(missing_ok=True)
        latent, size, hidden = self._sizes
        shapes = (2, latent, size), (2, hidden, 3 + size)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self._socket))
            server.listen()

            def serve(channel: socket.socket) -> None:
                with channel, channel.makefile("rwb") as stream:
                    while True:
                        arrays = []
                        for shape in shapes:
                            data = stream.read(4 * math.prod(shape))
                            if len(data) < 4 * math.prod(shape):
                                return
                            arrays.append(np.frombuffer(data, np.float32).reshape(shape))
                        stream.write(self._npu.compute(*arrays).tobytes())
                        stream.flush()

            def accept() -> None:
                try:
                    while True:
                        serve(server.accept()[0])
                except OSError:
                    # The case is over.
                    return

            threading.Thread(target=accept, daemon=True).start()
            yield
            server.shutdown(socket.SHUT_RDWR)

    def _debian(self) -> None:
        """Python for arm64 from Debian, without touching this system's package lists."""
        apt, debs = self._work / "apt", self._work / "debs"
        for folder in (apt / "lists/partial", apt / "cache/archives/partial", debs):
            folder.mkdir(parents=True, exist_ok=True)
        (apt / "status").touch()
        options = [f"-o={key}={value}" for key, value in (
            ("Dir::State", apt), ("Dir::State::lists", apt / "lists"),
            ("Dir::State::status", apt / "status"), ("Dir::Cache", apt / "cache"),
            ("APT::Architecture", "arm64"), ("APT::Architectures", "arm64"),
        )]  # fmt: skip
        _run(["apt-get", *options, "update"])
        _run(["apt-get", *options, "download", *DEBS], cwd=debs)
        for deb in sorted(debs.glob("*.deb")):
            _run(["dpkg-deb", "-x", str(deb), str(self._root)])

    def _wheels(self) -> None:
        """The package, with and apart from what it and this project need."""
        tags = ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_27_aarch64",
                "manylinux_2_28_aarch64"]  # fmt: skip
        base = [sys.executable, "-m", "pip", "install", "-q", "--python-version", ABI,
                "--only-binary", ":all:", *(f"--platform={tag}" for tag in tags)]  # fmt: skip
        _run([*base, "--target", str(self._site), *WHEELS, "ruamel.yaml"])
        _run([*base, "--no-deps", "--target", str(self._lite), LITE])


def _run(command: list[str], cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.DEVNULL)


def _write(page: Path, table: str) -> None:
    start, end = "<!-- table: benchmarks/rknn_lite_qemu.py -->\n", "<!-- end -->\n"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{start}\n{table}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
