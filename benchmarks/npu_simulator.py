"""The estimator as rknn-toolkit2 converts and simulates it, beside the CPU. Prints Markdown tables.

    python benchmarks/npu_simulator.py --work FOLDER [--full CHECKPOINT] [--json FILE]

Needs the toolkit ('boardvoice rknn install'). In a folder of its own it exports seeded checkpoints
with the estimator for the NPU and compares, always against f32 on the CPU:

- tiny: 20 patches spoken with every evaluation in the simulator, beside the same on the CPU;
- the same with outliers planted in two channels of the residual stream: by what reads the noisy
  patch (times 3000, and times 200000, which f16 would not hold without scales); by every layer,
  where the norms that read them are as much smaller, as trained models have it; and by every
  layer with nothing that makes up for it, where the two channels are all that the model sees;
- with --full, the real sizes (a checkpoint that 'python -m export.synthetic --size full' or
  benchmarks/full_size.py wrote): all 9 evaluations of one patch on recorded inputs. Takes 8 GB of
  memory, 7 of disk and some ten minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from safetensors.numpy import load_file, save_file

from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.protocol import Array, Graph
from edge_runtime.bundle import Bundle
from edge_runtime.cancel import CancelToken
from edge_runtime.kv_cache import KVCache, KVShape
from edge_runtime.noise import SeededNoise
from edge_runtime.npu.adapter import NpuFlowGraph
from edge_runtime.npu.flow_model import FlowModel
from edge_runtime.npu.simulator import SimulatorRunner
from edge_runtime.rknn_toolkit.conversions import ConversionCache
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.voxcpm2.decode import PatchDecoder, PatchLimit
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.model import read_spec
from edge_runtime.voxcpm2.prompt import PrefixBuilder, VoicePrompt
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from export.synthetic import RECIPES, make_checkpoint
from export.voxcpm2.exporter import export_voxcpm2
from export.voxcpm2.npu_export import NpuExport
from export.voxcpm2.npu_inputs import NpuInput, record_inputs

PATCHES, EVALUATIONS = 20, 9
TEXT = "The lift is out of order today; please take the stairs beside the main entrance hall."
# Rows that write into the residual stream, and the channels that are made large.
FIRST, ALL = ("in_proj",), ("in_proj", "self_attn.o_proj", "mlp.down_proj")
CHANNELS = (5, 40)
# Name, what writes the channels, factor, and whether what reads them makes up for it.
PLANTS = (
    ("first layer, ×3000", FIRST, 3000, False),
    ("first layer, ×200000", FIRST, 200_000, False),
    ("every layer, ×3000, norms ÷3000", ALL, 3000, True),
    ("every layer, ×3000", ALL, 3000, False),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--full", type=Path, help="a checkpoint at the real sizes")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    tiny = make_checkpoint(work / "tiny", RECIPES["tiny"], replace=True)
    found["tiny"] = _decode(_export(tiny, work / "tiny-bundle"), arguments.threads)
    for index, (name, writers, factor, made_up_for) in enumerate(PLANTS):
        folder = work / f"planted-{index}"
        _plant(tiny, folder, writers, factor, made_up_for=made_up_for)
        found[name] = _decode(_export(folder, work / f"planted-{index}-bundle"), arguments.threads)
    print(f"\n{PATCHES} patches, seeded weights at small sizes, f32 on the CPU and the simulator\n")
    print(
        "| checkpoint | largest residual | scale | whole decode, dB | each patch from the CPU's "
        "state, dB | least evaluation, dB | the same in f32 with inputs in f16, dB | same stop "
        "decisions |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, row in found.items():
        print(
            f"| {name} | {row['largest']:.4g} | {row['scale']:g} | {row['snr_db']:.1f} | "
            f"{row['patch_snr_db']:.1f} | {row['least_evaluation_db']:.1f} | "
            f"{row['rounded_db']:.1f} | "
            f"{'yes' if row['same_stops'] else 'no'} |"
        )
    if arguments.full is not None:
        found["full"] = full = _full(arguments.full, work / "full-bundle", arguments.threads)
        print("\nReal sizes, 12 layers\n\n| what | figure |\n|---|---|")
        for key, value in full.items():
            print(f"| {key} | {value} |")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2))


def _export(checkpoint: Path, out: Path, weights: str = "f32") -> Bundle:
    npu = NpuExport(log=out.with_suffix(".rknn.log"))
    export_voxcpm2(checkpoint, out, weights=weights, npu=npu, replace=True)  # type: ignore[arg-type]
    return Bundle.open(out, verify=False)


def _plant(
    checkpoint: Path, out: Path, writers: tuple[str, ...], factor: float, *, made_up_for: bool
) -> None:
    """A copy whose residual stream has outlier channels."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(checkpoint, out)
    file = out / "model.safetensors"
    tensors = load_file(str(file))
    for name, tensor in tensors.items():
        if not name.startswith("feat_decoder.estimator."):
            continue
        by = factor if any(f".{part}." in name for part in writers) else 1.0
        if made_up_for and name.endswith("norm.weight"):
            by = 1 / factor
        if by != 1:
            rows = tensor.astype(np.float32)
            rows[list(CHANNELS)] *= np.float32(by)
            tensors[name] = rows.astype(tensor.dtype)
    save_file(tensors, str(file))


class _StopWatch:
    """The LM with its stop logits kept."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self.stops: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def step(self, *arguments: Any, **named: Any) -> Any:
        self.stops.append(self.lm.output.stop)
        return self.lm.step(*arguments, **named)


def _decode(bundle: Bundle, threads: int) -> dict[str, Any]:
    """Speak on the CPU and in the simulator, each with its own patches fed back."""
    spec = read_spec(bundle)
    backend = OrtBackend(threads, spinning=False)
    graphs = {name: backend.load(bundle.path(file)) for name, file in spec.graphs.items()}
    model = FlowModel.of(bundle)
    with closing(SimulatorRunner(model)) as runner:
        npu = NpuFlowGraph(runner, model.form, provider="rknn-sim")
        on_cpu, cpu_stops, solved = _speak(bundle, graphs, graphs["flow"])
        simulated, stops, _ = _speak(bundle, graphs, npu)
        solver = _Solver(spec, npu, graphs)
        again = [solver.solve(*inputs) for inputs in solved]
        least, rounded = _evaluations(bundle, model, runner)
    return {
        "largest": model.entry.largest["residual"],
        "scale": model.entry.prefix_scale,
        "patches": len(simulated),
        "finite": bool(np.isfinite(simulated).all()),
        "snr_db": _decibels(on_cpu, simulated),
        "patch_snr_db": _decibels(on_cpu, np.stack(again)),
        "least_evaluation_db": least,
        "rounded_db": rounded,
        "same_stops": stops == cpu_stops,
    }


def _evaluations(bundle: Bundle, model: FlowModel, runner: SimulatorRunner) -> tuple[float, float]:
    """The worst of single evaluations on recorded inputs, beside the same graph in f32.

    And the same of that graph when nothing but its inputs is rounded: what it makes of errors.
    """
    scale = model.entry.prefix_scale
    source = ConversionCache.default().source(model.entry.source_sha256)
    assert source is not None
    session = ort.InferenceSession(str(source.graph))
    recorded = record_inputs(bundle, read_spec(bundle))
    feeds = [_feeds(each, scale) for each in recorded]
    simulated, rounded = [], []
    for each in feeds:
        wanted = session.run(None, each)[0]
        simulated.append(_decibels(wanted, runner.run(*each.values())))
        halves = {name: array.astype(np.float16).astype(np.float32) for name, array in each.items()}
        rounded.append(_decibels(wanted, session.run(None, halves)[0]))
    return min(simulated), min(rounded)


class _Solver(FlowSolver):
    """The solver of the official schedule, with what it was given."""

    def __init__(self, spec: VoxCpm2Spec, flow: Graph, graphs: Mapping[Any, Graph]) -> None:
        options = SpeechOptions()
        super().__init__(
            spec, flow, graphs["flow_time"], graphs["flow_condition"],
            steps=options.euler_steps, cfg=options.cfg,
        )  # fmt: skip
        self.given: list[tuple[Array, Array, Array]] = []

    def solve(self, mu: Array, cond: Array, noise: Array, cancel: Any = None) -> Any:
        self.given.append((mu.copy(), cond.copy(), noise.copy()))
        return super().solve(mu, cond, noise, cancel)


def _speak(
    bundle: Bundle, graphs: Mapping[Any, Graph], flow: Graph
) -> tuple[np.ndarray, list[bool], list[tuple[Array, Array, Array]]]:
    spec = read_spec(bundle)
    prefixes = PrefixBuilder(bundle, spec, graphs["patch_encoder"])
    prefix = prefixes.build(TEXT, VoicePrompt())
    kv = spec.kv
    shape = KVShape(kv.layers, kv.num_kv_heads, kv.head_size, kv.max_rows, bucket_rows=64)
    watch = _StopWatch(LanguageModel(graphs["lm"], spec, KVCache(shape, prefix.total_rows)))
    solver = _Solver(spec, flow, graphs)
    metrics = SpeechMetrics(0, spec.vae_decoder.sample_rate, spec.patch_seconds)
    decoder = PatchDecoder(spec, watch, solver, graphs["patch_encoder"], metrics)  # type: ignore[arg-type]
    patches = decoder.patches(
        prefix, lambda lm, built, cancel: lm.prefill(built.rows, built.is_audio, cancel),
        PatchLimit(PATCHES, "max_len"), PATCHES, SeededNoise(1), CancelToken(),
    )  # fmt: skip
    return np.stack([patch for patch, _ in patches]), watch.stops, solver.given


def _full(checkpoint: Path, out: Path, threads: int) -> dict[str, Any]:
    began = time.monotonic()
    bundle = _export(checkpoint, out, "int8")
    seconds = time.monotonic() - began
    model = FlowModel.of(bundle)
    entry = model.entry
    # The last patch that was recorded: what goes in has been through the LM for a while.
    inputs = record_inputs(bundle, read_spec(bundle))[-EVALUATIONS:]
    source = ConversionCache.default().source(entry.source_sha256)
    assert source is not None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(source.graph), options)
    wanted = [session.run(None, _feeds(each, entry.prefix_scale))[0] for each in inputs]
    del session
    began = time.monotonic()
    with closing(SimulatorRunner(model)) as runner:
        opened = time.monotonic() - began
        found = [runner.run(*_feeds(each, entry.prefix_scale).values()) for each in inputs]
    pairs = list(zip(wanted, found, strict=True))
    file = model.file
    return {
        "export with conversion (from the cache if it was there)": f"{seconds:.0f} s",
        "operators": entry.operators,
        "of them on the CPU": ", ".join(entry.cpu_operators),
        "cycles of one evaluation": f"{entry.cycles / 1e6:.2f} million",
        "NPU memory": f"{entry.memory_bytes / 1e6:.1f} MB",
        "model file": f"{file.stat().st_size / 1e6:.1f} MB",
        "scales (residual, gated)": f"{entry.prefix_scale:g}, {entry.gated_scale:g}",
        "largest values": ", ".join(f"{name} {size:g}" for name, size in entry.largest.items()),
        "simulator opens in": f"{opened:.0f} s",
        "SNR of the 9 evaluations": " ".join(f"{_decibels(*pair):.1f}" for pair in pairs) + " dB",
        "least cosine": f"{min(_cosine(*pair) for pair in pairs):.7f}",
    }


def _feeds(recorded: NpuInput, scale: float) -> dict[str, Array]:
    return {"x": recorded.x, "prefix": recorded.prefix * np.float32(scale)}


def _decibels(wanted: np.ndarray, found: np.ndarray) -> float:
    error = float(np.linalg.norm(found.astype(np.float64) - wanted))
    return math.inf if error == 0 else 20 * math.log10(float(np.linalg.norm(wanted)) / error)


def _cosine(wanted: np.ndarray, found: np.ndarray) -> float:
    one, two = wanted.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    return float(one @ two / (np.linalg.norm(one) * np.linalg.norm(two)))


if __name__ == "__main__":
    main()
