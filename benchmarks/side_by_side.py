"""boardvoice beside another program: same checkpoint, same text, alternating runs.

    python benchmarks/side_by_side.py --bundle BUNDLE --rival official --checkpoint FOLDER \\
        [--dtype float32] [--threads 2] [--patches 6] [--rounds 3] [--json FILE]
    python benchmarks/side_by_side.py --bundle BUNDLE --rival audio.cpp --audio-cpp BINARY \\
        --model MODEL.gguf [--audio-cpp-command TEMPLATE]

The official package (`voxcpm` from PyPI, with torch) runs on the CPU in float32 or in the
checkpoint's own type; in float32 it takes 12 GB. Both programs stay loaded and stream; a patch is
the time from one piece of audio to the next. audio.cpp is a program that loads for every run, so a
patch of it is the difference of a long and a short run, divided by the patches between them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edge_runtime.bench.machine import Machine
from edge_runtime.bench.measure import TEXT, BenchPlan, sample_run
from edge_runtime.bench.results import Stat
from edge_runtime.memory.limits import ProcessMemory

# As its own documentation for VoxCPM2 has it, on the CPU.
AUDIO_CPP_COMMAND = (
    "{binary} --task tts --family voxcpm2 --model {model} --backend cpu --threads {threads} "
    "--text {text} --max-tokens {patches} --num-inference-steps 10 --guidance-scale 2.0 "
    "--out {out}"
)
Run = Callable[[], dict[str, Any]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--rival", choices=("official", "audio.cpp"), required=True)
    parser.add_argument("--checkpoint", help="for the official package")
    parser.add_argument("--dtype", default="float32", help="of the official package")
    parser.add_argument("--audio-cpp", metavar="BINARY")
    parser.add_argument("--model", help="for audio.cpp")
    parser.add_argument("--audio-cpp-command", default=AUDIO_CPP_COMMAND, metavar="TEMPLATE")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--patches", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", choices=("ours", "official"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        _serve(_ours(arguments) if arguments.worker == "ours" else _official(arguments))
        return
    if not (arguments.checkpoint if arguments.rival == "official" else arguments.audio_cpp):
        parser.error("the official package needs --checkpoint, audio.cpp needs --audio-cpp")
    result = _measure(arguments)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _show(result)


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    with _Worker("ours") as ours:
        if arguments.rival == "official":
            with _Worker("official") as official:
                return _alternate(arguments, ours.about, ours.run, official.about, official.run)
        about = {"what": "audio.cpp", "version": "", "weights": Path(arguments.model or "").name}
        return _alternate(arguments, ours.about, ours.run, about, lambda: _audio_cpp(arguments))


def _alternate(
    arguments: argparse.Namespace,
    about: dict[str, Any],
    run: Run,
    rival_about: dict[str, Any],
    rival_run: Run,
) -> dict[str, Any]:
    """Warm both up, then one run of each, again and again."""
    contenders = (("ours", run), ("rival", rival_run))
    for _, once in contenders:
        once()
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "rival": []}
    for _ in range(arguments.rounds):
        for name, once in contenders:
            found[name].append(once())
    sides = {}
    for name, facts in (("ours", about), ("rival", rival_about)):
        runs = found[name]
        stats = {
            key: Stat.of(run[key] for run in runs)
            for key in ("patch_ms", "cpu_s_per_patch", "first_audio_ms")
        }
        sides[name] = {
            **facts,
            "rss_anon_mb": max(run["rss_anon_mb"] for run in runs),
            **{key: stat.model_dump() for key, stat in stats.items() if stat is not None},
        }
    return {
        "kind": "side by side",
        "format": 1,
        "taken": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": Machine.read().model_dump(),
        "text": arguments.text,
        "threads": arguments.threads,
        "patches": arguments.patches,
        "rounds": arguments.rounds,
        **sides,
    }


class _Worker:
    """One contender in a process of its own, that runs when it is told to."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--worker", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.about = self._answer()

    def run(self) -> dict[str, Any]:
        """One run; waits until it is over."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._answer()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Libraries print there as well.
            if line.startswith('{"worker": '):
                answer: dict[str, Any] = json.loads(line)["worker"]
                return answer
        raise SystemExit(f"a worker ended with status {self._process.wait()}")


def _serve(worker: Iterator[dict[str, Any]]) -> None:
    print(json.dumps({"worker": next(worker)}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"worker": next(worker)}), flush=True)


def _ours(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from boardvoice import Voice

    start = time.perf_counter()
    voice = Voice.load(arguments.bundle, threads=arguments.threads)
    load_s = round(time.perf_counter() - start, 1)
    plan = BenchPlan(text=arguments.text, patches=arguments.patches, cold=False)
    yield {
        "what": "boardvoice", "version": version("boardvoice"),
        "weights": voice.manifest.weights, "load_s": load_s,
    }  # fmt: skip
    while True:
        run = sample_run(voice, plan)
        yield {
            "patch_ms": run.patch_ms,
            "cpu_s_per_patch": run.patch_cpu_s,
            "first_audio_ms": [run.metrics.first_audio_ms],
            "rss_anon_mb": round(run.metrics.peak_rss_anon_bytes / 1e6),
        }


def _official(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/parity"))
    from official import load_module

    load_module()
    import torch
    from voxcpm import VoxCPM

    torch.set_num_threads(arguments.threads)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = _with_dtype(Path(arguments.checkpoint), Path(folder), arguments.dtype)
        model = VoxCPM.from_pretrained(
            str(checkpoint), load_denoiser=False, optimize=False, device="cpu"
        )
    load_s = round(time.perf_counter() - start, 1)
    yield {
        "what": "official package", "version": f"voxcpm {version('voxcpm')}, "
        f"torch {version('torch')}", "weights": arguments.dtype, "load_s": load_s,
    }  # fmt: skip
    while True:
        patch_ms, cpu_s = [], []
        wall, cpu = started, _ = time.perf_counter(), time.process_time()
        first = 0.0
        for index, _ in enumerate(
            model.generate_streaming(
                arguments.text, cfg_value=2.0, inference_timesteps=10,
                min_len=arguments.patches, max_len=arguments.patches, retry_badcase=False,
            )
        ):  # fmt: skip
            now, spent = time.perf_counter(), time.process_time()
            if index == 0:
                first = (now - started) * 1000
            else:
                patch_ms.append((now - wall) * 1000)
                cpu_s.append(spent - cpu)
            wall, cpu = now, spent
        yield {
            "patch_ms": patch_ms,
            "cpu_s_per_patch": cpu_s,
            "first_audio_ms": [first],
            "rss_anon_mb": round(ProcessMemory.read().anonymous / 1e6),
        }


def _with_dtype(checkpoint: Path, folder: Path, dtype: str) -> Path:
    """The checkpoint, linked into another folder, with another type in its config."""
    for file in checkpoint.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file.resolve())
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "dtype": dtype}), encoding="utf-8")
    return folder


def _audio_cpp(arguments: argparse.Namespace) -> dict[str, Any]:
    short, long = (_audio_cpp_once(arguments, patches) for patches in (2, arguments.patches + 2))
    patches = long["patches"] - short["patches"]
    if patches < 1:
        raise SystemExit("audio.cpp made no more audio in the long run than in the short one")
    return {
        "patch_ms": [(long["wall"] - short["wall"]) * 1000 / patches],
        "cpu_s_per_patch": [(long["cpu"] - short["cpu"]) / patches],
        # It is not told when the first audio is there.
        "first_audio_ms": [],
        "rss_anon_mb": long["rss_mb"],
    }


def _audio_cpp_once(arguments: argparse.Namespace, patches: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.wav"
        values = {
            "binary": arguments.audio_cpp, "model": arguments.model or "",
            "threads": arguments.threads, "text": arguments.text, "patches": patches, "out": out,
        }  # fmt: skip
        command = [part.format(**values) for part in shlex.split(arguments.audio_cpp_command)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=sys.stderr, env=os.environ)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        with wave.open(str(out)) as audio:
            seconds = audio.getnframes() / audio.getframerate()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Peak of all memory: the kernel keeps no peak of anonymous memory alone.
    rss_mb = round(after.ru_maxrss * 1024 / 1e6)
    return {"wall": wall, "cpu": cpu, "rss_mb": rss_mb, "patches": round(seconds / 0.16)}


def _show(result: dict[str, Any]) -> None:
    ours, rival = result["ours"], result["rival"]
    print(
        f"\n| | {ours['what']}, {ours['weights']} | {rival['what']}, {rival['weights']} | ratio |"
    )
    print("|---|---|---|---|")
    for key in ("patch_ms", "cpu_s_per_patch", "first_audio_ms"):
        if key in ours and key in rival:
            mine, theirs = ours[key]["p50"], rival[key]["p50"]
            print(f"| {key} | {mine:.3g} | {theirs:.3g} | {theirs / mine:.2f} |")


if __name__ == "__main__":
    main()
