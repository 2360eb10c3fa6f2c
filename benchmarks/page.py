"""Makes docs/benchmarks.md from the results in docs/benchmarks/.

    python benchmarks/page.py [--check]

Results are files that `boardvoice bench --json`, `benchmarks/side_by_side.py --json` and
`benchmarks/format_accuracy.py --json` wrote.
A result's `note`, written by hand, says what disturbed it. With --check nothing is written; the
exit status is 1 when the page is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge_runtime.bench.results import BenchResult

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = "benchmarks.md"
RESULTS = "benchmarks"
_INTRO = """\
# Benchmarks

Made by `benchmarks/page.py` from the results in [`benchmarks/`](benchmarks); edit those, not this.
How figures are taken is said in [Bench](bench.md). A patch is 160 ms of audio.
"""


def page_text(docs: Path) -> str:
    """The page for the results under a docs folder."""
    runs, pairs, accuracies = [], [], []
    for file in sorted((docs / RESULTS).glob("*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        if data.get("kind") == "side by side":
            pairs.append((file.name, data))
        elif data.get("kind") == "format accuracy":
            accuracies.append((file.name, data))
        else:
            runs.append((file.name, BenchResult.load(file)))
    lines = [_INTRO]
    if pairs:
        lines.append("## Beside others\n")
        lines.append(
            "Same checkpoint, same text, alternating runs; medians. A ratio is theirs over ours.\n"
        )
        for name, pair in pairs:
            lines.extend(_pair(name, pair))
    if runs:
        lines.append("## Component by component\n")
        lines.append(
            '"Of the limit" is the least time by the probe (products at the speed of a large one '
            "in the same kernel, or reading the weights, whichever is longer) over the median. "
            '"Kernels alone" is what the products with weight matrices take by themselves in '
            "ONNX Runtime, with as many rows at a time and their weights read from memory.\n"
        )
        for name, run in runs:
            lines.extend(_run(name, run))
    if accuracies:
        lines.append("## Accuracy of weight formats\n")
        lines.append(
            "Signal-to-noise ratios against f32 weights, dB. Each row is a model whose weights are "
            "f32 but for those named, fed the f32 model's patches and noise. Names: "
            "`benchmarks/format_accuracy.py`; what follows: [Weight formats](weight-formats.md).\n"
        )
        for name, accuracy in accuracies:
            lines.extend(_accuracy(name, accuracy))
    return "\n".join(lines)


def _pair(name: str, pair: dict[str, Any]) -> Iterator[str]:
    ours, rival, machine = pair["ours"], pair["rival"], pair["machine"]
    version = f" ({rival['version']})" if rival["version"] else ""
    yield (
        f"{pair['taken']}, {machine['cpu']}, {pair['threads']} threads, onnxruntime "
        f"{machine['onnxruntime']}; {pair['rounds']} runs of {pair['patches']} patches each "
        f"([result](benchmarks/{name}))\n"
    )
    them = f"{rival['what']}{version}, {rival['weights']}"
    yield f"| | boardvoice, {ours['weights']} | {them} | ratio |"
    yield "|---|---|---|---|"
    for key, title in (
        ("patch_ms", "one patch, wall ms"),
        ("cpu_s_per_patch", "one patch, CPU-s"),
        ("first_audio_ms", "first audio, ms"),
    ):
        if key in ours and key in rival:
            mine, theirs = ours[key]["p50"], rival[key]["p50"]
            yield f"| {title} | {_number(mine)} | {_number(theirs)} | {theirs / mine:.1f} |"
    mine, theirs = ours["rss_anon_mb"], rival["rss_anon_mb"]
    yield f"| anonymous memory, MB | {mine} | {theirs} | {theirs / mine:.1f} |"
    if "load_s" in rival:
        yield f"| load, s | {ours['load_s']} | {rival['load_s']} | |"
    yield ""
    if "note" in pair:
        yield f"{pair['note']}\n"


def _run(name: str, run: BenchResult) -> Iterator[str]:
    setup, machine, probe = run.setup, run.machine, run.probe
    overlap = ", audio decoded beside the next patch" if setup.overlap_vae else ""
    kind = ", seeded weights" if setup.synthetic else ""
    yield (
        f"### {setup.bundle}, {setup.weights}, {machine.cpu}\n\n"
        f"{run.taken}, {setup.threads} threads, onnxruntime {machine.onnxruntime}, KV "
        f"{setup.kv_dtype}, {'prepared' if setup.prepared else 'not prepared'}{kind}{overlap}; "
        f"{setup.runs} runs of {setup.patches} patches after {setup.prefix_rows} rows, "
        f"{setup.preset}, {setup.steps} steps, guidance {setup.cfg:g} "
        f"([result](benchmarks/{name}))\n"
    )
    yield (
        "| | p50 | p90 | GFLOP | weights, MB | GFLOP/s | GB/s | bound by | of the limit | "
        "kernels alone, ms |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for title, component in run.components.items():
        cells = [_number(component.ms.p50), _number(component.ms.p90)]
        reached = component.reached
        if reached is not None:
            cells += [
                _number(sum(reached.gflop.values())), _number(reached.weight_mb),
                _number(reached.gflops), _number(reached.gbs), reached.limit,
                f"{reached.fraction:.0%}",
                "" if reached.kernels_ms is None else _number(reached.kernels_ms),
            ]  # fmt: skip
        yield _row(f"{title}, ms per {component.per}", cells)
    for title, stat in (
        ("one patch, ms", run.patch_ms),
        ("one patch, CPU-s", run.cpu_s_per_patch),
        ("first audio, ms", run.first_audio_ms),
        ("real-time factor", run.rtf),
    ):
        yield _row(title, [_number(stat.p50), _number(stat.p90)])
    gflops = ", ".join(f"{name} {value:.0f}" for name, value in probe.gflops.items())
    yield (
        f"\nProbe: GFLOP/s {gflops}; reads {probe.read_gbs:.0f} GB/s. Load {run.load_ms:.0f} ms, "
        f"KV {run.kv_mb:.1f} MB, anonymous memory at most {run.peak_rss_anon_mb:.0f} MB."
    )
    if run.cold is not None:
        cold = run.cold
        read = "" if cold.disk_read_mb is None else f", {cold.disk_read_mb:.0f} MB read from disk"
        yield (
            f"Cold, a fresh process with its files dropped from memory: first audio after "
            f"{cold.start_to_audio_ms:.0f} ms{read}."
        )
    yield ""


def _accuracy(name: str, result: dict[str, Any]) -> Iterator[str]:
    kind = "seeded" if result["synthetic"] else "trained"
    yield (
        f"### {result['checkpoint']}, {kind} weights\n\n"
        f"{result['taken']}, {result['machine']['cpu']}, onnxruntime "
        f"{result['machine']['onnxruntime']}; {result['patches']} patches, {result['steps']} "
        f"steps, guidance {result['cfg']:g} ([result](benchmarks/{name}))\n"
    )
    yield "| not f32 | LM output (mu) | stop logits | latents |\n|---|---|---|---|"
    for row in result["rows"]:
        cells = (row["mu_db"], row["stop_db"], row["latents_db"])
        shown = ("same bits" if cell is None else f"{cell:.1f}" for cell in cells)
        yield f"| `{row['row']}` | {' | '.join(shown)} |"
    yield ""


def _row(title: str, cells: list[str]) -> str:
    filled = cells + [""] * (9 - len(cells))
    return f"| {title} | {' | '.join(filled)} |"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    page, text = DOCS / PAGE, page_text(DOCS)
    if arguments.check:
        return int(not page.is_file() or page.read_text(encoding="utf-8") != text)
    page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
