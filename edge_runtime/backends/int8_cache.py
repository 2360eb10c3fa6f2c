"""Whether a back end can keep keys and values in int8, found by a tiny known answer."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import numpy.typing as npt

from device_profiles.schema import Profile
from edge_runtime.backends.protocol import Backend
from edge_runtime.errors import BackendError

# One attention layer as the exporter writes it; made by tests/runtime/make_int8_probe.py.
PROBE = Path(__file__).with_name("int8_cache.onnx")
HEADS, HEAD_SIZE = 2, 16
# The cache's scale of each channel.
K_SCALE = np.linspace(0.01, 0.02, HEAD_SIZE, dtype=np.float32)
V_SCALE = np.linspace(0.02, 0.01, HEAD_SIZE, dtype=np.float32)
_CAPACITY, _PREFIX, _POISON = 8, 3, 127
# Kernels may sum, and quantize the query, in their own ways; a wrong one is off by far more.
_TOLERANCE = 0.02
_LOG = logging.getLogger("boardvoice")

FloatArray = npt.NDArray[np.float32]


def supported_kv(profile: Profile, backend: Backend) -> tuple[Profile, str]:
    """The profile as this back end can serve it: f16 where an int8 KV cache is not possible.

    Returns:
        The profile, and why its KV type is not the one asked for; empty when it is. The reason
        is logged.
    """
    if profile.kv.dtype != "int8":
        return profile, ""
    missing = why_no_int8_cache(backend)
    if not missing:
        return profile, ""
    reason = (
        f"The KV cache is in f16, not int8: {missing} "
        "ONNX Runtime 1.32 or newer can (Python 3.11 or newer)."
    )
    _LOG.warning("%s", reason)
    return profile.model_copy(update={"kv": profile.kv.model_copy(update={"dtype": "f16"})}), reason


def why_no_int8_cache(backend: Backend) -> str:
    """Run one layer over an int8 cache and compare with what must come out.

    Returns:
        What is wrong, as a sentence; empty when all is right.
    """
    rows = probe_rows()
    expected_keys, expected_values, expected = _attention(rows)
    keys = np.full((1, 1, _CAPACITY, HEAD_SIZE), _POISON, np.int8)
    values = keys.copy()
    try:
        outputs = _run(backend, rows, keys, values)
    except BackendError as error:
        _LOG.debug("%s", error.message)
        return "the back end has no attention over an int8 cache."
    count = len(rows)
    for found, wanted in ((keys, expected_keys), (values, expected_values)):
        if np.abs(found[0, 0, :count].astype(np.int16) - wanted).max() > 1:
            return "the back end quantizes keys or values wrongly."
        if (found[0, 0, count:] != _POISON).any():
            return "the back end writes beyond the valid rows of an int8 cache."
    # Written so that NaN is wrong too.
    if not np.abs(outputs - expected).max() <= _TOLERANCE * np.abs(expected).max():
        return "attention over an int8 cache gives wrong results in the back end."
    return ""


def probe_rows() -> FloatArray:
    """Packed query, key and value [rows, (heads + 2) * head size]: fixed, within ±1."""
    shape = (_PREFIX + 2, (HEADS + 2) * HEAD_SIZE)
    rows: FloatArray = np.sin(np.arange(np.prod(shape)) * 1.7).astype(np.float32)
    return rows.reshape(shape)


def _run(
    backend: Backend, rows: FloatArray, keys: npt.NDArray[np.int8], values: npt.NDArray[np.int8]
) -> FloatArray:
    """A prefix and then row by row, in place, as the runtime does. Result [rows, heads * size]."""
    graph = backend.load(PROBE)
    outputs = np.empty((len(rows), HEADS * HEAD_SIZE), np.float32)
    for start, stop in ((0, _PREFIX), *((at, at + 1) for at in range(_PREFIX, len(rows)))):
        binding = graph.bind()
        # Named, so that they live until the run: what is bound stays the caller's.
        piece = np.ascontiguousarray(rows[None, start:stop])
        last, total = np.array([stop - 1], np.int32), np.array(stop, np.int32)
        for name, array in (("rows", piece), ("seqlens_k", last), ("total_rows", total)):
            binding.input(name, array)
        for kind, buffer in (("key", keys), ("value", values)):
            binding.input(f"past_{kind}_0", buffer)
            binding.output(f"present_{kind}_0", buffer)
        binding.output("heads", outputs[None, start:stop])
        binding.run()
    return outputs


def _attention(
    rows: FloatArray,
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16], FloatArray]:
    """Keys and values as the cache must hold them, and causal attention over those."""
    query, key, value = np.split(rows, [HEADS * HEAD_SIZE, (HEADS + 1) * HEAD_SIZE], axis=1)
    keys, values = (
        np.clip(np.rint(part / scale), -128, 127).astype(np.int16)
        for part, scale in ((key, K_SCALE), (value, V_SCALE))
    )
    return keys, values, _causal(query, keys * K_SCALE, values * V_SCALE)


def plain_attention(rows: FloatArray) -> FloatArray:
    """Causal attention of packed rows over their own keys and values [rows, heads * size]."""
    return _causal(*np.split(rows, [HEADS * HEAD_SIZE, (HEADS + 1) * HEAD_SIZE], axis=1))


def _causal(query: FloatArray, keys: FloatArray, values: FloatArray) -> FloatArray:
    scores = query.reshape(len(query), HEADS, HEAD_SIZE) @ keys.T / np.sqrt(HEAD_SIZE)
    future = np.triu(np.ones((len(query), len(query)), bool), 1)
    weights = np.exp(np.where(future[:, None], -np.inf, scores))
    weights /= weights.sum(axis=-1, keepdims=True)
    heads = (weights @ values).astype(np.float32)
    return heads.reshape(len(query), HEADS * HEAD_SIZE)
