"""What weight formats cost in accuracy, whole and layer kind by layer kind. Prints Markdown tables.

    python benchmarks/format_accuracy.py --work FOLDER --exact F32_BUNDLE \\
        --bundles int8=BUNDLE int4=BUNDLE [--rows int8 int8:lm.base lm=int4,*=int8 ...]

The f32 bundle speaks two texts, the second with the first as its reference, 40 patches in all.
Every row of the table is a model of mixed formats, fed the same patches before and the same noise:
f32, but for the layer kinds named, which come from another bundle of the same checkpoint.
`int8:lm.base` takes one selector of kinds from a bundle (or several: `int8:lm.base+lm.fusion`),
`lm=int4,*=int8` what fits best from several bundles, `int8` all of one. Without --rows: each
bundle whole and by groups of kinds.

--work must be on the bundles' file system: their weights are linked into it. The f32 run is kept
there. The LM's f32 weights are mapped, not packed: a model of full size takes 2 GB of memory and
what the page cache can give.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from teacher_forced import (
    TEXTS,
    Recording,
    Replayed,
    decibels,
    encoded,
    kv_shape,
    prefix_pieces,
    record,
    replay,
    solved,
)

from device_profiles.weight_formats import LayerKind, WeightFormat
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.protocol import Graph
from edge_runtime.bench.machine import Machine
from edge_runtime.bundle import Bundle
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.model import read_spec
from edge_runtime.voxcpm2.prompt import PrefixBuilder

EXACT = "f32"
GROUPS = (
    "lm", "lm.base", "lm.residual", "lm.fusion", "lm.*.qkv+lm.*.output",
    "lm.*.gate_up+lm.*.down", "patch_encoder", "flow", "flow.qkv+flow.output",
    "flow.gate_up+flow.down", "head", "embedding",
)  # fmt: skip
GRAPHS = ("lm", "patch_encoder", "flow")
STEPS, CFG = 10, 2.0


@dataclass(frozen=True)
class Mix:
    """Which bundle each kind of layer comes from.

    Attributes:
        label: As the row names it.
        sources: Bundle by kind; kinds that are not there are exact.
    """

    label: str
    sources: Mapping[LayerKind, str]

    @staticmethod
    def of(text: str) -> Mix:
        """Read a row's name; see the module's description."""
        if ":" in text:
            bundle, _, selectors = text.partition(":")
            choices = dict.fromkeys(selectors.split("+"), bundle)
        elif "=" in text:
            choices = dict(part.split("=") for part in text.split(","))
        else:
            choices = {"*": text}
        sources: dict[LayerKind, str] = {}
        for selector in sorted(choices, key=lambda s: sum(part != "*" for part in s.split("."))):
            kinds = [kind for kind in LayerKind if kind.matches(selector)]
            if not kinds:
                raise SystemExit(f"No layer kind is called {selector!r}.")
            sources |= dict.fromkeys(kinds, choices[selector])
        return Mix(text, {kind: name for kind, name in sources.items() if name != EXACT})


class Bench:
    """Bundles of one checkpoint in several formats, and models mixed of them."""

    def __init__(self, bundles: Mapping[str, Bundle], work: Path, threads: int) -> None:
        self.bundles, self._work = bundles, work
        self.spec = read_spec(bundles[EXACT])
        self._backend = OrtBackend(threads, spinning=False)
        self._kept: dict[str, Graph] = {}
        for name, bundle in bundles.items():
            for graph in GRAPHS:
                link = work / f"{name}.{graph}.weights"
                link.unlink(missing_ok=True)
                os.link(bundle.folder / f"graphs/{graph}.weights", link)

    def graph(self, name: str, mix: Mix) -> tuple[Graph, bool]:
        """Load a graph, and whether any layer of it is not exact."""
        others = {source: self._model(source, name) for source in {EXACT, *mix.sources.values()}}
        proto, changed = others[EXACT], 0
        for node in list(proto.graph.node):
            kind = _kind(name, node.name)
            if kind in mix.sources:
                changed += _take(proto, others[mix.sources[kind]], node.name)
        if not changed and name in self._kept:
            return self._kept[name], False
        if name == "lm":
            _keep_unpacked(proto)
        file = self._work / f"{name}.onnx"
        file.write_bytes(proto.SerializeToString())
        graph = self._backend.load(file)
        if not changed and name != "lm":  # the large one is mapped anew instead
            self._kept[name] = graph
        return graph, changed > 0

    def solver(self, flow: Graph) -> FlowSolver:
        """A solver over an estimator; time and condition tokens are exact."""
        exact = self.bundles[EXACT]
        time_, condition = (
            self._backend.load(exact.path(self.spec.graphs[name]))
            for name in ("flow_time", "flow_condition")
        )
        return FlowSolver(self.spec, flow, time_, condition, steps=STEPS, cfg=CFG)

    def prefixes(self, mix: Mix, encoder: Graph) -> PrefixBuilder:
        """Rows of the mix's embedding table."""
        bundle = self.bundles[mix.sources.get(LayerKind.EMBEDDING, EXACT)]
        return PrefixBuilder(bundle, read_spec(bundle), encoder)

    def differs(self, mix: Mix) -> bool:
        """Whether any kind that the mix takes from elsewhere has another format there."""
        return any(
            self.bundles[source].manifest.formats[kind.value] != WeightFormat.F32.value
            for kind, source in mix.sources.items()
        )

    def _model(self, source: str, name: str) -> onnx.ModelProto:
        path = self.bundles[source].path(self.spec.graphs[name])
        proto = onnx.load(str(path), load_external_data=False)
        for tensor in proto.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = f"{source}.{entry.value}"
        return proto


def _kind(graph: str, node: str) -> LayerKind | None:
    """The layer kind of a product, by the names that the exporter gives."""
    if not node.endswith("/product"):
        return None
    parts = node.split("/")
    stacks = {"base_lm": "lm.base", "residual_lm": "lm.residual", "decoder": "flow",
              "encoder": "patch_encoder"}  # fmt: skip
    if parts[0] in stacks:
        return LayerKind(
            f"{stacks[parts[0]]}.{ {'q': 'qkv', 'kv': 'qkv'}.get(parts[3], parts[3]) }"
        )
    heads = {"fusion": "lm.fusion", "fsq": "head.quantizer", "stop": "head.stop",
             "lm_to_dit_proj": "head.mu", "res_to_dit_proj": "head.mu"}  # fmt: skip
    return LayerKind(heads.get(parts[0], f"head.{graph}"))


def _take(proto: onnx.ModelProto, other: onnx.ModelProto, product: str) -> bool:
    """Replace a product, with what stands around it, by another model's; whether they differ."""
    scope = product.removesuffix("product")
    new = [
        node
        for node in other.graph.node
        if node.name.startswith(scope) and not node.name.endswith("/biased")
    ]
    at, old = next((i, n) for i, n in enumerate(proto.graph.node) if n.name == product)
    if [node.op_type for node in new] == [old.op_type]:
        return False
    own = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name in old.input[1:]:
        proto.graph.initializer.remove(own[name])
    new = [onnx.NodeProto.FromString(node.SerializeToString()) for node in new]
    # What comes last is the result, whatever it is called; the rest of the graph reads "product".
    names = {product: f"{scope}inner"} if len(new) > 1 else {}
    names[new[-1].output[0]] = product
    inputs = [name for node in new for name in node.input]
    for node in new:
        node.output[:] = [names.get(name, name) for name in node.output]
        node.input[:] = [names.get(name, name) for name in node.input]
    proto.graph.initializer.extend(t for t in other.graph.initializer if t.name in inputs)
    del proto.graph.node[at]
    for offset, node in enumerate(new):
        proto.graph.node.insert(at + offset, node)
    return True


def _keep_unpacked(proto: onnx.ModelProto) -> None:
    """Declare f32 matrices as inputs with defaults: not constant, they are neither packed nor
    copied."""
    matrices = {node.input[1] for node in proto.graph.node if node.op_type == "MatMul"}
    for tensor in proto.graph.initializer:
        if tensor.name in matrices and tensor.external_data:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            proto.graph.input.append(info)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--exact", type=Path, required=True, help="f32 bundle")
    parser.add_argument("--bundles", nargs="+", required=True, metavar="NAME=BUNDLE")
    parser.add_argument("--rows", nargs="+", metavar="ROW")
    parser.add_argument("--patches", type=int, default=40, help="of both texts together")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="add the rows to this file")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    named = {EXACT: arguments.exact} | dict(text.split("=", 1) for text in arguments.bundles)
    bundles = {name: Bundle.open(path, verify=False) for name, path in named.items()}
    rows = arguments.rows or [
        row
        for name in bundles
        if name != EXACT
        for row in (name, *(f"{name}:{group}" for group in GROUPS))
    ]
    bench = Bench(bundles, arguments.work, arguments.threads)
    spoken = _spoken(bench, arguments.work, arguments.patches)
    manifest = bundles[EXACT].manifest
    weights = "seeded" if manifest.synthetic else "trained"
    print(
        f"{manifest.name}, {weights} weights, onnxruntime {onnxruntime.__version__}, "
        f"{arguments.patches} patches, {STEPS} steps, guidance {CFG:g}\n"
    )
    print("| not f32 | mu, dB | stop logits, dB | latents, dB |\n|---|---|---|---|")
    results = []
    for text in rows:
        mix = Mix.of(text)
        if not bench.differs(mix):
            continue
        start = time.perf_counter()
        figures = _ratios(bench, mix, spoken)
        cells = " | ".join("equal" if each is None else f"{each:.1f}" for each in figures.values())
        print(f"| {mix.label} | {cells} | ({time.perf_counter() - start:.0f} s)", flush=True)
        results.append({"row": mix.label, **figures})
        if arguments.json:
            _add(arguments.json, bench, arguments, results)


def _spoken(bench: Bench, work: Path, patches: int) -> list[Recording]:
    files = [work / f"spoken-{patches}-{index}.npz" for index in range(len(TEXTS))]
    if not all(file.exists() for file in files):
        mix = Mix(EXACT, {})
        graph, encoder, flow = (bench.graph(name, mix)[0] for name in GRAPHS)
        parts = (bench.spec, graph, encoder, bench.solver(flow), bench.prefixes(mix, encoder))
        reference = None
        for text, file in zip(TEXTS, files, strict=True):
            one = record(*parts, text, reference, patches // len(TEXTS))
            one.save(file)
            reference = np.stack(one.patches[1:])
        del graph, parts
        gc.collect()
    return [Recording.load(file) for file in files]


def _ratios(bench: Bench, mix: Mix, spoken: list[Recording]) -> dict[str, float | None]:
    encoder, other_encoder = bench.graph("patch_encoder", mix)
    flow, _ = bench.graph("flow", mix)
    solver, prefixes = bench.solver(flow), bench.prefixes(mix, encoder)
    lm, other_lm = bench.graph("lm", mix)
    runs_lm = other_lm or other_encoder or LayerKind.EMBEDDING in mix.sources
    reference, found = None, []
    for text, one in zip(TEXTS, spoken, strict=True):
        if runs_lm:
            pieces, _ = prefix_pieces(prefixes, text, reference)
            rows = [encoded(encoder, patch) for patch in one.patches[1:-1]]
            shape = kv_shape(bench.spec, "f32")
            found.append(replay(bench.spec, lm, shape, solver, one, pieces=pieces, rows=rows))
        else:
            steps = zip(one.mu, one.patches[:-1], one.noise, strict=True)
            patches = [solved(solver, *step) for step in steps]
            found.append(Replayed(one.mu, one.stop, patches))
        reference = np.stack(one.patches[1:])
    pairs = list(zip(spoken, found, strict=True))
    figures = {
        "mu_db": decibels([(one.mu, other.mu) for one, other in pairs]),
        "stop_db": decibels([(one.stop, other.stop) for one, other in pairs]),
        "latents_db": decibels([(one.patches[1:], other.patches) for one, other in pairs]),
    }
    del lm
    gc.collect()
    return {key: None if np.isinf(each) else round(each, 2) for key, each in figures.items()}


def _add(
    file: Path, bench: Bench, arguments: argparse.Namespace, results: list[dict[str, object]]
) -> None:
    manifest = bench.bundles[EXACT].manifest
    data = {
        "kind": "format accuracy",
        "taken": date.today().isoformat(),
        "machine": Machine.read().model_dump(mode="json"),
        "checkpoint": manifest.name,
        "synthetic": manifest.synthetic,
        "patches": arguments.patches,
        "steps": STEPS,
        "cfg": CFG,
        "rows": [],
    }
    if file.exists():
        data = json.loads(file.read_text(encoding="utf-8"))
    fresh = {str(row["row"]) for row in results}
    data["rows"] = [row for row in data["rows"] if row["row"] not in fresh] + results
    data["formats"] = data.get("formats", {}) | {
        name: bundle.manifest.formats for name, bundle in bench.bundles.items() if name != EXACT
    }
    file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
