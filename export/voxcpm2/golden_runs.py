"""Which runs of VoxCPM2's graphs are kept as golden vectors."""

from __future__ import annotations

from itertools import count
from pathlib import PurePosixPath

import numpy as np

from edge_runtime.backends.int8_cache import why_no_int8_cache
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.bundle import Bundle
from edge_runtime.golden.golden_file import Carried, InputRecipe
from edge_runtime.kv_cache import KVType
from edge_runtime.voxcpm2.spec import StreamSpec, VoxCpm2Spec
from export.golden.golden_writer import PlannedGraph, PlannedRun

_TEXT_ROWS = 12
_KV_ROWS = 64
_AUDIO_SCALE = 0.1
# Times of the schedule's start, middle and end.
_TIMES = (1.0, 0.625, 0.0625)
_EMBEDDING_ROWS = 64


def golden_runs(bundle: Bundle, spec: VoxCpm2Spec) -> list[PlannedGraph]:
    """The runs, by graph, for a bundle as it is so far."""
    seeds = count(1)

    def seeded(*shape: int, scale: float = 1.0, filled: int | None = None) -> InputRecipe:
        return InputRecipe(shape=shape, seed=next(seeds), scale=scale, filled=filled)

    size, width, hidden = spec.patch_size, spec.latent_dim, spec.flow.hidden
    samples = size * spec.vae_encoder.hop

    def flow(batch: int) -> dict[str, InputRecipe]:
        return {
            "x": seeded(1, size, width),
            # The unguided half's conditioning is zeros.
            "mu": seeded(batch, 2, hidden, filled=1),
            "time_token": seeded(1, 1, hidden),
            "cond_tokens": seeded(1, size, hidden),
        }

    def latent() -> dict[str, InputRecipe]:
        noise = {
            f"noise_{index}": seeded(1, 1, size * hop) for index, hop in enumerate(spec.noise_hops)
        }
        return {"latent": seeded(1, width, size), **noise}

    def times(scale: float) -> InputRecipe:
        moments = tuple(scale * moment for moment in _TIMES)
        return InputRecipe(shape=(len(_TIMES),), fill="values", values=moments)

    prefill = {
        "rows": seeded(1, _TEXT_ROWS, spec.hidden, scale=_row_scale(bundle, spec)),
        **_rows(0, _TEXT_ROWS, is_audio=False),
    }
    step = {"rows": seeded(1, 1, spec.hidden), **_rows(_TEXT_ROWS, 1, is_audio=True)}
    lm_runs = (PlannedRun("lm_prefill", prefill), PlannedRun("lm_step", step))
    mean_mode = 0.125 if spec.flow.mean_mode else 0.0
    files = spec.graphs
    return [
        *(
            PlannedGraph("lm", file, lm_runs, _cache(spec, dtype), dtype)
            for dtype, file in _lm_files(bundle, spec).items()
        ),
        PlannedGraph(
            "patch_encoder", files["patch_encoder"],
            (PlannedRun("patch_encoder", {"patches": seeded(2, size, width)}),),
        ),
        PlannedGraph(
            "flow_time", files["flow_time"],
            (PlannedRun("flow_time", {"t": times(1), "dt": times(mean_mode)}),),
        ),
        PlannedGraph(
            "flow_condition", files["flow_condition"],
            (PlannedRun("flow_condition", {"cond": seeded(1, size, width)}),),
        ),
        PlannedGraph(
            "flow", files["flow"],
            (PlannedRun("flow", flow(2)), PlannedRun("flow_unguided", flow(1))),
        ),
        PlannedGraph(
            "vae_encoder", files["vae_encoder"],
            tuple(
                PlannedRun(name, {"audio": seeded(1, 1, samples, scale=_AUDIO_SCALE)})
                for name in ("vae_encoder", "vae_encoder_next")
            ),
            _states(spec.vae_encoder),
        ),
        PlannedGraph(
            "vae_decoder", files["vae_decoder"],
            tuple(PlannedRun(name, latent()) for name in ("vae_decoder", "vae_decoder_next")),
            _states(spec.vae_decoder),
        ),
    ]  # fmt: skip


def _lm_files(bundle: Bundle, spec: VoxCpm2Spec) -> dict[KVType, str]:
    """The LM over each kind of cache that there is, and that can be run here."""
    folder = PurePosixPath(spec.graphs["lm"]).parent
    found: dict[KVType, str] = {"f32": spec.graphs["lm"]}
    for dtype in ("f16", "int8"):
        file = f"{folder}/lm.kv_{dtype}.onnx"
        if file not in bundle.manifest.files:
            continue
        if dtype == "int8" and why_no_int8_cache(OrtBackend(threads=1, spinning=False)):
            continue
        found[dtype] = file
    return found


def _rows(before: int, count: int, *, is_audio: bool) -> dict[str, InputRecipe]:
    total = before + count
    return {
        "is_audio": InputRecipe(
            shape=(1, count, 1), fill="values", values=(float(is_audio),) * count
        ),
        "seqlens_k": InputRecipe(shape=(1,), dtype="i32", fill="values", values=(total - 1,)),
        "total_rows": InputRecipe(shape=(), dtype="i32", fill="values", values=(total,)),
    }


def _cache(spec: VoxCpm2Spec, dtype: KVType) -> tuple[Carried, ...]:
    kv = spec.kv
    shape = (1, kv.num_kv_heads, min(_KV_ROWS, kv.max_rows), kv.head_size)
    return tuple(
        Carried(
            input=f"past_{kind}_{{}}", output=f"present_{kind}_{{}}",
            shapes=(shape,) * kv.layers, dtype=dtype, in_place=True,
        )
        for kind in ("key", "value")
    )  # fmt: skip


def _states(spec: StreamSpec) -> tuple[Carried, ...]:
    return (Carried(input="state_{}", output="next_state_{}", shapes=spec.states),)


def _row_scale(bundle: Bundle, spec: VoxCpm2Spec) -> float:
    """Size of the values in embedded text, so that rows look like text to the LM."""
    embedding = spec.embedding
    dtype = "<f4" if embedding.dtype == "f32" else "<f2"
    values = np.fromfile(
        bundle.path(embedding.file), dtype, min(_EMBEDDING_ROWS, embedding.vocab) * spec.hidden
    ).astype(np.float64)
    size = float(np.sqrt(np.mean(values**2))) * embedding.scale
    return round(size, 6) or 1.0
