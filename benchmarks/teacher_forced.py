"""Two runs of a model compared patch by patch, the second fed what the first one said.

Shared by `kv_formats.py` and `format_accuracy.py`. Errors do not pile up over patches this way,
and two runs never speak of different things.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_runtime.backends.protocol import Graph
from edge_runtime.cancel import CancelToken
from edge_runtime.kv_cache import KVCache, KVShape, KVType
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.prompt import PrefixBuilder, VoicePrompt
from edge_runtime.voxcpm2.spec import VoxCpm2Spec

TEXTS = (
    "Where did you leave the blue umbrella that your sister bought in Lisbon last summer?",
    "Le musée ouvre à dix heures; les billets coûtent douze euros et se prennent à l'entrée.",
)
Solve = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass
class Recording:
    """One text as one model speaks it.

    Attributes:
        pieces: Prefill inputs: rows [S, H] and is_audio [S].
        rows: Step inputs [1, 1, H].
        mu: LM output before each patch.
        stop: Stop logits before each patch.
        noise: Noise of each patch.
        patches: The patch before each, then the last.
    """

    pieces: list[tuple[np.ndarray, np.ndarray]]
    rows: list[np.ndarray] = field(default_factory=list)
    mu: list[np.ndarray] = field(default_factory=list)
    stop: list[np.ndarray] = field(default_factory=list)
    noise: list[np.ndarray] = field(default_factory=list)
    patches: list[np.ndarray] = field(default_factory=list)

    def save(self, file: Path) -> None:
        """Write to an ``.npz``."""
        arrays = {
            f"piece{i}_{j}": a for i, each in enumerate(self.pieces) for j, a in enumerate(each)
        }
        for name in ("rows", "mu", "stop", "noise", "patches"):
            arrays[name] = np.stack(getattr(self, name))
        np.savez(file, **arrays)

    @staticmethod
    def load(file: Path) -> Recording:
        """Read what `save` wrote."""
        with np.load(file) as saved:
            count = sum(name.startswith("piece") for name in saved.files) // 2
            pieces = [(saved[f"piece{i}_0"], saved[f"piece{i}_1"]) for i in range(count)]
            lists = {name: list(saved[name]) for name in ("rows", "mu", "stop", "noise", "patches")}
        return Recording(pieces, **lists)


@dataclass
class Replayed:
    """What another model says where the first one is at.

    Attributes:
        mu: LM output before each patch.
        stop: Stop logits before each patch.
        patches: Each patch, solved from this ``mu``, the first model's patch before and its noise.
        clipped: Share of values that an int8 cache cut off.
    """

    mu: list[np.ndarray] = field(default_factory=list)
    stop: list[np.ndarray] = field(default_factory=list)
    patches: list[np.ndarray] = field(default_factory=list)
    clipped: float = 0.0


def kv_shape(spec: VoxCpm2Spec, dtype: KVType) -> KVShape:
    """Sizes of a cache."""
    kv = spec.kv
    return KVShape(kv.layers, kv.num_kv_heads, kv.head_size, kv.max_rows, 256, dtype)


def prefix_pieces(
    prefixes: PrefixBuilder, text: str, reference: np.ndarray | None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Prefill inputs of a text after a reference, and the patch before its first one."""
    prefix = prefixes.build(text, VoicePrompt(reference=reference))
    pieces = [(prefix.rows, prefix.is_audio)]
    if reference is not None:
        pieces.insert(0, prefixes.reference_rows(reference))
    return pieces, prefix.last_patch


def record(
    spec: VoxCpm2Spec,
    lm_graph: Graph,
    encoder: Graph,
    solver: FlowSolver,
    prefixes: PrefixBuilder,
    text: str,
    reference: np.ndarray | None,
    patches: int,
) -> Recording:
    """Speak a text over an f32 cache."""
    pieces, last_patch = prefix_pieces(prefixes, text, reference)
    one = Recording(pieces, patches=[last_patch])
    lm = _prefilled(spec, lm_graph, kv_shape(spec, "f32"), pieces)
    random = np.random.default_rng(0)
    size = (spec.latent_dim, spec.patch_size)
    for index in range(patches):
        _note(one, lm)
        one.noise.append(random.standard_normal(size, np.float32))
        one.patches.append(solved(solver, one.mu[-1], one.patches[-1], one.noise[-1]))
        if index + 1 < patches:
            one.rows.append(encoded(encoder, one.patches[-1]))
            lm.step(one.rows[-1])
    return one


def replay(
    spec: VoxCpm2Spec,
    lm_graph: Graph,
    shape: KVShape,
    solver: FlowSolver,
    one: Recording,
    *,
    pieces: list[tuple[np.ndarray, np.ndarray]] | None = None,
    rows: list[np.ndarray] | None = None,
) -> Replayed:
    """Feed a recording to another LM or solver.

    Args:
        spec: Sizes.
        lm_graph: LM.
        shape: Of its cache.
        solver: Solver.
        one: The first model's run.
        pieces: Prefill inputs; the recording's own unless given.
        rows: Step inputs, likewise.
    """
    found = Replayed()
    lm = _prefilled(spec, lm_graph, shape, one.pieces if pieces is None else pieces)
    rows = one.rows if rows is None else rows
    for index, noise in enumerate(one.noise):
        _note(found, lm)
        found.patches.append(solved(solver, found.mu[-1], one.patches[index], noise))
        if index < len(rows):
            lm.step(rows[index])
    found.clipped = lm.cache.clipped_share()
    return found


def encoded(encoder: Graph, patch: np.ndarray) -> np.ndarray:
    """The LM's row [1, 1, H] of a patch [P, D]."""
    return encoder.run({"patches": patch[None]})["rows"].reshape(1, 1, -1)


def solved(solver: FlowSolver, mu: np.ndarray, before: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """One patch [P, D]."""
    patch = solver.solve(mu, before, noise, CancelToken())
    assert patch is not None
    return patch.copy()


def decibels(pairs: Sequence[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]) -> float:
    """Signal-to-noise ratio of all pairs (exact, found) together; infinite where equal."""
    signal = sum(float(np.square(ref, dtype=np.float64).sum()) for ref, _ in pairs)
    noise = sum(
        float(np.square(np.subtract(ref, found, dtype=np.float64)).sum()) for ref, found in pairs
    )
    return float("inf") if noise == 0 else float(10 * np.log10(signal / noise))


def _prefilled(
    spec: VoxCpm2Spec, graph: Graph, shape: KVShape, pieces: list[tuple[np.ndarray, np.ndarray]]
) -> LanguageModel:
    lm = LanguageModel(graph, spec, KVCache(shape, 256))
    for piece in pieces:
        lm.prefill(*piece)
    return lm


def _note(one: Recording | Replayed, lm: LanguageModel) -> None:
    one.mu.append(lm.output.mu.copy())
    one.stop.append(lm.output.stop_logits.copy())
