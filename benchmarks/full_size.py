"""Figures of the full-size model: checkpoint, export, load, speech. Prints a Markdown table.

    python benchmarks/full_size.py --work /tmp/boardvoice-full [--weights int8] [--patches 20]

Makes the seeded checkpoint (5 GB) under --work unless it is there, a bundle and prepared files.
Each step runs in a process of its own, so that its memory does not show in the next one's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

STEPS = ("checkpoint", "export", "prepare", "speak")
TEXT = "Now serving number forty two at counter seven."


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--weights", default="int8", choices=("f32", "f16", "int8", "int4"))
    parser.add_argument("--patches", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--unprepared", action="store_true", help="speak without prepared files")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["BOARDVOICE_STATE"] = str(_state(arguments))
    if arguments.step:
        print(json.dumps(globals()[f"_{arguments.step}"](arguments)))
        return
    rows = {}
    for step in STEPS:
        if step == "prepare" and arguments.unprepared:
            continue
        command = [sys.executable, __file__, *sys.argv[1:], "--step", step]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.update(json.loads(out.splitlines()[-1]))
    import onnxruntime

    print(
        f"\n{_cpu()}, {arguments.threads} threads, onnxruntime {onnxruntime.__version__}, "
        f"{arguments.weights}, {arguments.patches} patches\n"
    )
    print("| what | figure |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


def _checkpoint(arguments: argparse.Namespace) -> dict[str, str]:
    from export.synthetic.maker import make_checkpoint
    from export.synthetic.recipes import RECIPES

    folder = arguments.work / "checkpoint"
    if folder.exists():
        return {}
    with _measured() as figures:
        make_checkpoint(folder, RECIPES["full"])
    return {f"make checkpoint, {key}": value for key, value in figures.items()}


def _export(arguments: argparse.Namespace) -> dict[str, str]:
    from export.voxcpm2.exporter import export_voxcpm2

    bundle = arguments.work / f"bundle-{arguments.weights}"
    with _measured() as figures:
        export_voxcpm2(
            arguments.work / "checkpoint", bundle, weights=arguments.weights, replace=True
        )
    size = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    figures["bundle"] = f"{size / 1e9:.2f} GB"
    return {f"export, {key}": value for key, value in figures.items()}


def _prepare(arguments: argparse.Namespace) -> dict[str, str]:
    from boardvoice import Voice

    bundle = arguments.work / f"bundle-{arguments.weights}"
    with _measured() as figures:
        Voice.load(bundle, threads=arguments.threads)
    size = sum(file.stat().st_size for file in _state(arguments).rglob("*") if file.is_file())
    return {
        "first load (prepares the bundle), wall": figures["wall"],
        "prepared files": f"{size / 1e9:.2f} GB",
    }


def _state(arguments: argparse.Namespace) -> Path:
    return arguments.work / "state"


def _speak(arguments: argparse.Namespace) -> dict[str, str]:
    from boardvoice import Voice

    bundle = arguments.work / f"bundle-{arguments.weights}"
    with _measured() as figures:
        prepare = "never" if arguments.unprepared else "auto"
        voice = Voice.load(bundle, threads=arguments.threads, prepare=prepare)
    rows = {f"load, {key}": value for key, value in figures.items()}
    with _measured() as figures:
        length = arguments.patches
        speech = voice.say(
            TEXT, seed=1, min_len=length, max_len=length, retry_badcase=False
        )
    found = speech.metrics.as_dict()
    rows |= {
        "speak, RssAnon peak": figures["RssAnon peak"],
        "speak, RSS peak (with mapped files)": f"{_high_water() / 1e9:.2f} GB",
        "KV": f"{found['kv_bytes'] / 1e6:.1f} MB for {found['prefix_rows']} + {length} rows",
        "first audio": f"{found['first_audio_ms']:.0f} ms",
        "per patch (160 ms of audio)": f"{found['ms_per_patch']:.0f} ms wall, "
        f"{found['cpu_s_per_patch']:.2f} CPU-s",
        "RTF": f"{found['rtf']:.2f}",
    }
    for name in ("prefill", "flow", "lm_step", "vae_decode", "patch_encoder"):
        per = 1 if name == "prefill" else length
        rows[f"{name}, ms{'' if per == 1 else ' per patch'}"] = f"{found['ms'][name] / per:.1f}"
    return rows


class _measured:  # noqa: N801 - used like a function
    """Wall time and anonymous peak of a block."""

    def __enter__(self) -> dict[str, str]:
        from edge_runtime.memory.watch import MemoryWatch

        self._figures: dict[str, str] = {}
        self._rss = MemoryWatch()
        self._rss.__enter__()
        self._start = time.perf_counter()
        return self._figures

    def __exit__(self, *_: object) -> None:
        wall = time.perf_counter() - self._start
        self._rss.__exit__(None, None, None)
        self._figures["wall"] = f"{wall:.1f} s"
        self._figures["RssAnon peak"] = f"{self._rss.peak / 1e9:.2f} GB"


def _high_water() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


if __name__ == "__main__":
    main()
