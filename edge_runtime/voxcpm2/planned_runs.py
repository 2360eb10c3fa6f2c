"""What VoxCPM2 runs for a request, with the shapes that decide the work; nothing is loaded."""

from __future__ import annotations

import math

from edge_runtime.kv_cache import KVShape
from edge_runtime.plan.request import Attention, FamilyPlan, PlannedRun, PlanRequest, Shape
from edge_runtime.voxcpm2.flow import Schedule
from edge_runtime.voxcpm2.lm import PREFILL_ROWS
from edge_runtime.voxcpm2.prompt import ENCODE_PATCHES as PREFIX_PATCHES
from edge_runtime.voxcpm2.spec import StreamSpec, VoxCpm2Spec
from edge_runtime.voxcpm2.vae import ENCODE_PATCHES as AUDIO_PATCHES

_FLOAT = 4
# A reference stands between two control tokens.
_REFERENCE_TOKENS = 2
_GRAPHS = ("lm", "patch_encoder", "flow", "flow_time", "flow_condition", "vae_decoder")


def planned_runs(spec: VoxCpm2Spec, request: PlanRequest, kv: KVShape) -> FamilyPlan:
    """All runs of a request.

    Args:
        spec: Sizes.
        request: What is spoken.
        kv: The KV cache's shape on the board.

    Raises:
        CapacityError: The request needs more KV rows than there are.
    """
    heard = math.ceil(round(request.reference_s / spec.patch_seconds, 6))
    reference_rows = heard + _REFERENCE_TOKENS if heard else 0
    prefix = reference_rows + request.text_rows
    rows = prefix + request.patches - 1
    capacity = kv.capacity(rows)
    runs = [*_reference(spec, heard), *_prefill(spec, kv, reference_rows, request.text_rows)]
    runs += _flow(spec, request)
    runs += [
        PlannedRun("vae_decode", "vae_decoder", _vae_decoder(spec)),
        PlannedRun("patch_encoder", "patch_encoder", _patches(spec, 1), before_audio=False),
        PlannedRun(
            "lm_step", "lm", _lm(spec, 1), before_audio=False,
            attention=_attention(spec, kv, 1, (prefix + rows) / 2, grows=rows > kv.bucket_rows),
        ),
    ]  # fmt: skip
    return FamilyPlan(
        runs=tuple(runs),
        patch_seconds=spec.patch_seconds,
        rows=rows,
        prefix_rows=prefix,
        kv_bytes=capacity * kv.row_bytes,
        graphs=_GRAPHS + (("vae_encoder",) if heard else ()),
    )


def _reference(spec: VoxCpm2Spec, heard: int) -> list[PlannedRun]:
    runs = [
        PlannedRun("encode", "vae_encoder", _vae_encoder(spec, size), "request", times)
        for size, times in _pieces(heard, AUDIO_PATCHES)
    ]
    return runs + [
        PlannedRun("encode", "patch_encoder", _patches(spec, size), "request", times)
        for size, times in _pieces(heard, PREFIX_PATCHES)
    ]


def _prefill(spec: VoxCpm2Spec, kv: KVShape, *segments: int) -> list[PlannedRun]:
    """A reference's rows and the others are read apart, each in pieces."""
    runs, cached = [], 0
    for segment in segments:
        left = segment
        while left:
            size = min(left, PREFILL_ROWS)
            attention = _attention(spec, kv, size, cached + size / 2)
            runs.append(
                PlannedRun("prefill", "lm", _lm(spec, size), "request", attention=attention)
            )
            cached, left = cached + size, left - size
    return runs


def _flow(spec: VoxCpm2Spec, request: PlanRequest) -> list[PlannedRun]:
    steps = request.euler_steps
    evaluations = steps - Schedule.of(steps).zero_steps
    size, width, hidden = spec.patch_size, spec.latent_dim, spec.flow.hidden
    batch = 1 if request.cfg == 1.0 else 2
    estimator: dict[str, Shape] = {
        "x": (1, size, width),
        "mu": (batch, 2, hidden),
        "time_token": (1, 1, hidden),
        "cond_tokens": (1, size, hidden),
    }
    return [
        PlannedRun("flow_time", "flow_time", {"t": (steps,), "dt": (steps,)}, "request"),
        PlannedRun("flow", "flow_condition", {"cond": (1, size, width)}),
        PlannedRun("flow", "flow", estimator, times=evaluations),
    ]


def _attention(
    spec: VoxCpm2Spec, kv: KVShape, rows: int, cached: float, *, grows: bool = False
) -> Attention:
    """Attention of some rows over so many cached ones; only valid rows are read."""
    query = spec.hidden * kv.layers
    read = cached * kv.row_bytes
    if kv.dtype == "f16":
        # The CPU's kernel widens the rows to f32: writes them and reads them again.
        read *= 1 + 2 * _FLOAT / kv.numpy_dtype.itemsize
    # A growing cache copies its rows once per bucket.
    copied = 2 * cached * kv.row_bytes / kv.bucket_rows if grows else 0.0
    return Attention(ops=4.0 * rows * cached * query, read_bytes=read, copied_bytes=copied)


def _lm(spec: VoxCpm2Spec, rows: int) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {
        "rows": (1, rows, spec.hidden), "is_audio": (1, rows, 1),
        "seqlens_k": (1,), "total_rows": (),
    }  # fmt: skip
    return shapes


def _patches(spec: VoxCpm2Spec, count: int) -> dict[str, Shape]:
    return {"patches": (count, spec.patch_size, spec.latent_dim)}


def _vae_encoder(spec: VoxCpm2Spec, patches: int) -> dict[str, Shape]:
    samples = patches * spec.patch_size * spec.vae_encoder.hop
    return {"audio": (1, 1, samples), **_states(spec.vae_encoder)}


def _vae_decoder(spec: VoxCpm2Spec) -> dict[str, Shape]:
    noises = {f"noise_{index}": (1, 1, spec.patch_size * hop)
              for index, hop in enumerate(spec.noise_hops)}  # fmt: skip
    latent = (1, spec.latent_dim, spec.patch_size)
    return {"latent": latent, **noises, **_states(spec.vae_decoder)}


def _states(stream: StreamSpec) -> dict[str, Shape]:
    return {f"state_{index}": shape for index, shape in enumerate(stream.states)}


def _pieces(count: int, most: int) -> list[tuple[int, int]]:
    """Sizes of pieces, and how many of each."""
    whole, rest = divmod(count, most)
    return [(size, times) for size, times in ((most, whole), (rest, 1)) if size and times]
