"""Inputs of each MioCodec graph at the sizes that memory is planned with, and estimates of it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from edge_runtime.miocodec.spec import GraphName, MioCodecSpec, StackSpec
from edge_runtime.miocodec.stack_run import most_rows
from edge_runtime.miocodec.wave import HEAD_FRAMES
from edge_runtime.prepare.prepared_info import GraphCost, Workspace
from edge_runtime.prepare.probe import GraphProbe, zeros

_MIB = 1 << 20
_FLOAT = 4
# Rows at which graphs over whole clips are measured: 1, 10 and 60 s.
CLIP_ROWS = (50, 500, 3000)


def largest_inputs(spec: MioCodecSpec) -> dict[str, tuple[GraphProbe, ...]]:
    """Probes by graph name, the smallest first."""
    width, features = spec.decoder.hidden, spec.content.hidden
    voice = {"voice": zeros(1, spec.voice_width)}
    return {
        "content": _stack(spec.content, "features", features),
        "voice": _clips("features", features),
        "wave_prenet": _stack(spec.prenet, "codes", len(spec.levels)),
        "wave_prior": _clips("frames", width),
        "wave_decoder": _stack(spec.decoder, "frames", width, voice),
        "wave_post": _clips("frames", width),
        "wave_head": tuple(
            GraphProbe({"frames": zeros(rows, spec.post_width)}, rows)
            for rows in (HEAD_FRAMES // 4, HEAD_FRAMES)
        ),
    }


def estimated_workspaces(spec: MioCodecSpec) -> dict[str, tuple[Workspace, ...]]:
    """Scratch memory by graph where it was not measured, from the widths of activations."""
    per_row: dict[GraphName, tuple[tuple[int, ...], int]] = {
        "content": (_stack_rows(spec.content), _stack_floats(spec.content)),
        "voice": (CLIP_ROWS, 12 * spec.content.hidden),
        "wave_prenet": (_stack_rows(spec.prenet), _stack_floats(spec.prenet)),
        "wave_prior": (CLIP_ROWS, 8 * spec.decoder.hidden),
        "wave_decoder": (_stack_rows(spec.decoder), _stack_floats(spec.decoder)),
        "wave_post": (CLIP_ROWS, 8 * (spec.upsampling * spec.post_width + spec.decoder.hidden)),
        "wave_head": ((HEAD_FRAMES,), 6 * (spec.decoder.hidden + 2 * spec.spectrum.bins)),
    }
    return {
        name: tuple(Workspace(size=size, bytes=4 * _MIB + _FLOAT * floats * size) for size in sizes)
        for name, (sizes, floats) in per_row.items()
    }


def run_bytes(cost: GraphCost, rows: int) -> int:
    """What a run of any number of rows takes: beyond the largest measured one, in proportion."""
    largest = cost.workspaces[-1]
    if rows <= largest.size:
        return cost.workspace_bytes(rows)
    return -(-largest.bytes * rows // largest.size)


def _stack_rows(stack: StackSpec) -> tuple[int, ...]:
    most = most_rows(stack)
    fewest = stack.block
    return tuple(sorted({fewest, -(-most // 4 // fewest) * fewest, most}))


def _stack_floats(stack: StackSpec) -> int:
    """Floats per row that attention and the MLP hold at once."""
    heads = stack.hidden // stack.head_size
    return 16 * stack.hidden + 8 * heads * stack.block


def _stack(
    stack: StackSpec, port: str, width: int, further: dict[str, npt.NDArray[Any]] | None = None
) -> tuple[GraphProbe, ...]:
    half = stack.head_size // 2
    return tuple(
        GraphProbe(
            {
                port: zeros(rows, width), "cos": zeros(rows, half), "sin": zeros(rows, half),
                "absent": zeros(rows), **(further or {}),
            },
            rows,
        )
        for rows in _stack_rows(stack)
    )  # fmt: skip


def _clips(port: str, width: int) -> tuple[GraphProbe, ...]:
    return tuple(GraphProbe({port: zeros(rows, width)}, rows) for rows in CLIP_ROWS)
