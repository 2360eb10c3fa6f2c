"""What MioCodec runs to decode a clip, with the shapes that decide the work; nothing is loaded."""

from __future__ import annotations

from edge_runtime.miocodec.spec import GraphName, MioCodecSpec, StackSpec
from edge_runtime.miocodec.stack_run import pieces
from edge_runtime.miocodec.wave import HEAD_FRAMES
from edge_runtime.plan.request import FamilyPlan, PlannedRun, PlanRequest, Shape

_GRAPHS = ("wave_prenet", "wave_prior", "wave_decoder", "wave_post", "wave_head")


def planned_runs(spec: MioCodecSpec, request: PlanRequest) -> FamilyPlan:
    """All runs of a clip of as many seconds as the request has patches.

    All of a clip comes before its first samples but for the head, so all is once per request.
    """
    tokens = round(request.patches * spec.tokens_per_second)
    frames = spec.frames(spec.default_samples(tokens))
    runs = [
        *_stack("wave_prenet", spec.prenet, "codes", len(spec.levels), tokens),
        _once("wave_prior", {"frames": (frames, spec.decoder.hidden)}),
        *_stack("wave_decoder", spec.decoder, "frames", spec.decoder.hidden, frames),
        _once("wave_post", {"frames": (frames, spec.decoder.hidden)}),
    ]
    spectra = frames * spec.upsampling
    for start in range(0, spectra, HEAD_FRAMES):
        shape = (min(HEAD_FRAMES, spectra - start), spec.post_width)
        runs.append(_once("wave_head", {"frames": shape}))
    return FamilyPlan(
        runs=tuple(runs), patch_seconds=1.0, rows=0, prefix_rows=0, kv_bytes=0, graphs=_GRAPHS
    )


def _stack(name: GraphName, stack: StackSpec, port: str, width: int, rows: int) -> list[PlannedRun]:
    runs = []
    for piece in pieces(stack, rows):
        count = -(-(piece.stop - piece.first) // stack.block) * stack.block
        half = stack.head_size // 2
        runs.append(
            _once(
                name,
                {port: (count, width), "cos": (count, half), "sin": (count, half),
                 "absent": (count,)},
            )
        )  # fmt: skip
    return runs


def _once(name: GraphName, shapes: dict[str, Shape]) -> PlannedRun:
    return PlannedRun("decode", name, shapes, "request")
