"""Which runs of MioCodec's graphs are kept as golden vectors."""

from __future__ import annotations

from itertools import count

from edge_runtime.golden.golden_file import InputRecipe
from edge_runtime.miocodec.spec import GraphName, MioCodecSpec, StackSpec
from export.golden.golden_writer import PlannedGraph, PlannedRun

_FRAMES = 24


def golden_runs(spec: MioCodecSpec) -> list[PlannedGraph]:
    """The runs, by graph."""
    seeds = count(1)

    def seeded(*shape: int, scale: float = 1.0) -> InputRecipe:
        return InputRecipe(shape=shape, seed=next(seeds), scale=scale)

    def stack(of: StackSpec, port: str, width: int) -> dict[str, InputRecipe]:
        """Two blocks, the last rows of which are padding; angles are any two numbers here."""
        rows, half = 2 * of.block, of.head_size // 2
        absent = (0.0,) * (rows - 5) + (1.0,) * 5
        return {
            port: seeded(rows, width),
            "cos": seeded(rows, half),
            "sin": seeded(rows, half),
            "absent": InputRecipe(shape=(rows,), fill="values", values=absent),
        }

    def plan(name: GraphName, inputs: dict[str, InputRecipe]) -> PlannedGraph:
        return PlannedGraph(name, spec.graphs[name], (PlannedRun(name, inputs),))

    width = spec.decoder.hidden
    voice = {"voice": seeded(1, spec.voice_width)}
    features = spec.content.hidden
    return [
        plan("content", stack(spec.content, "features", features)),
        plan("voice", {"features": seeded(_FRAMES, features)}),
        plan("wave_prenet", stack(spec.prenet, "codes", len(spec.levels))),
        plan("wave_prior", {"frames": seeded(_FRAMES, width)}),
        plan("wave_decoder", stack(spec.decoder, "frames", width) | voice),
        plan("wave_post", {"frames": seeded(_FRAMES, width)}),
        plan("wave_head", {"frames": seeded(_FRAMES, spec.post_width, scale=0.5)}),
    ]
