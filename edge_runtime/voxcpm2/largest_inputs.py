"""Inputs of each VoxCPM2 graph at the sizes that the runtime plans with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.kv_cache import KV_DTYPES, KVType
from edge_runtime.prepare.probe import GraphProbe, zeros
from edge_runtime.voxcpm2.lm import PREFILL_ROWS
from edge_runtime.voxcpm2.prompt import ENCODE_PATCHES as PREFIX_PATCHES
from edge_runtime.voxcpm2.spec import StreamSpec, VoxCpm2Spec
from edge_runtime.voxcpm2.vae import ENCODE_PATCHES as AUDIO_PATCHES

# Rows in the cache; and as many as there may be, since attention over f16 takes more for each.
_CACHED_ROWS = 256
_STEPS = 100
# Sizes at which scratch memory is measured. It grows in proportion, so that a plan overstates
# what lies between two of them at most by their ratio.
LM_ROWS = (1, 16, 64, 128, PREFILL_ROWS)
PREFIX_SIZES = (1, 8, 32, PREFIX_PATCHES)
AUDIO_SIZES = (1, AUDIO_PATCHES)


def largest_inputs(spec: VoxCpm2Spec, kv_dtype: KVType) -> dict[str, tuple[GraphProbe, ...]]:
    """Probes by graph name, the smallest first."""
    size, width, hidden = spec.patch_size, spec.latent_dim, spec.flow.hidden
    flow = {
        "x": zeros(1, size, width),
        "mu": zeros(2, 2, hidden),
        "time_token": zeros(1, 1, hidden),
        "cond_tokens": zeros(1, size, hidden),
    }
    latent = zeros(1, width, size)
    noise = {
        f"noise_{index}": zeros(1, 1, size * hop) for index, hop in enumerate(spec.noise_hops)
    }
    patch_samples = size * spec.vae_encoder.hop
    states = _states(spec.vae_encoder)
    return {
        "lm": tuple(
            _lm(spec, kv_dtype, rows, cached)
            for rows in LM_ROWS
            for cached in (_CACHED_ROWS, spec.kv.max_rows)
        ),
        "patch_encoder": tuple(
            GraphProbe({"patches": zeros(count, size, width)}, count) for count in PREFIX_SIZES
        ),
        "flow": (GraphProbe(flow),),
        "flow_time": (GraphProbe({"t": zeros(_STEPS), "dt": zeros(_STEPS)}),),
        "flow_condition": (GraphProbe({"cond": zeros(1, size, width)}),),
        "vae_encoder": tuple(
            GraphProbe({"audio": zeros(1, 1, count * patch_samples), **states}, count)
            for count in AUDIO_SIZES
        ),
        "vae_decoder": (GraphProbe({"latent": latent, **noise, **_states(spec.vae_decoder)}),),
    }


def _lm(spec: VoxCpm2Spec, kv_dtype: KVType, rows: int, cached: int) -> GraphProbe:
    rows, cached = min(rows, spec.kv.max_rows), min(cached, spec.kv.max_rows)
    dtype = KV_DTYPES[kv_dtype]
    buffer = zeros(1, spec.kv.num_kv_heads, cached, spec.kv.head_size, dtype=dtype)
    inputs: dict[str, npt.NDArray[Any]] = {
        "rows": zeros(1, rows, spec.hidden),
        "is_audio": zeros(1, rows, 1),
        "seqlens_k": np.array([cached - 1], np.int32),
        "total_rows": np.array(cached, np.int32),
    }
    in_place = {}
    for index in range(spec.kv.layers):
        for kind in ("key", "value"):
            # One buffer serves all layers: what stands in it does not matter here.
            inputs[f"past_{kind}_{index}"] = buffer
            in_place[f"present_{kind}_{index}"] = f"past_{kind}_{index}"
    return GraphProbe(inputs, rows, cached, in_place)


def _states(spec: StreamSpec) -> dict[str, npt.NDArray[Any]]:
    return {f"state_{index}": zeros(*shape) for index, shape in enumerate(spec.states)}
