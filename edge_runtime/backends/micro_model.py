"""Tiny graphs with known answers: whether a provider works at all, and computes what it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.int8_cache import HEAD_SIZE, HEADS, plain_attention, probe_rows
from edge_runtime.backends.protocol import Array, Graph
from edge_runtime.errors import BackendError, BoardvoiceError

FloatArray = npt.NDArray[np.float32]

# Made by tests/runtime/make_micro_models.py.
LAYERS_FILE = Path(__file__).with_name("micro_layers.onnx")
ATTENTION_FILE = Path(__file__).with_name("micro_attention.onnx")
CHANNELS, FRAMES, WIDTH = 8, 12, 16
_CAPACITY, _PREFIX, _POISON = 8, 3, 77.0
# f16 arithmetic is off by a thousandth; a wrong kernel by far more.
_TOLERANCE = 0.01


@dataclass(frozen=True)
class MicroModel:
    """A graph with a known answer.

    Attributes:
        file: The graph.
        what: What it has, for messages.
        wrong: Runs it and says what is wrong, as part of a sentence; empty for nothing.
    """

    file: Path
    what: str
    wrong: Callable[[Graph], str]


def layer_weights() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Kernel [channels, channels, 3] and two matrices [channels, width], [width, width]."""
    return (
        _waves(CHANNELS, CHANNELS, 3) * np.float32(0.3),
        _waves(CHANNELS, WIDTH) * np.float32(0.5),
        _waves(WIDTH, WIDTH)[::-1].copy(),
    )


def _waves(*shape: int) -> FloatArray:
    values: FloatArray = np.sin(np.arange(np.prod(shape)) * 1.7 + len(shape)).astype(np.float32)
    return values.reshape(shape)


def _layers_wrong(graph: Graph) -> str:
    for frames in (FRAMES, FRAMES // 2):
        audio = _waves(1, CHANNELS, frames)
        expected = _layers(audio.astype(np.float64))
        found = np.full(expected.shape, _POISON, np.float32)
        binding = graph.bind()
        binding.input("audio", audio)
        binding.output("shares", found)
        binding.run()
        if _off(found, expected):
            return "convolution and products give wrong results"
    return ""


def _layers(audio: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    kernel, first, second = (weight.astype(np.float64) for weight in layer_weights())
    padded = np.pad(audio[0], ((0, 0), (1, 1)))
    count = audio.shape[2]
    windows = np.stack([padded[:, tap : tap + count] for tap in range(3)], axis=-1)
    rows = np.einsum("ocw,cfw->fo", kernel, windows)
    scores = np.tanh(rows @ first) @ second
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: npt.NDArray[np.float64] = (shares / shares.sum(axis=-1, keepdims=True))[None]
    return result


def _attention_wrong(graph: Graph) -> str:
    rows = probe_rows()
    expected = plain_attention(rows)
    keys = np.full((1, 1, _CAPACITY, HEAD_SIZE), _POISON, np.float16)
    values = keys.copy()
    found = np.empty((len(rows), HEADS * HEAD_SIZE), np.float32)
    for start, stop in ((0, _PREFIX), *((at, at + 1) for at in range(_PREFIX, len(rows)))):
        binding = graph.bind()
        # Named, so that they live until the run: what is bound stays the caller's.
        piece = np.ascontiguousarray(rows[None, start:stop])
        last, total = np.array([stop - 1], np.int32), np.array(stop, np.int32)
        inputs: tuple[tuple[str, Array], ...] = (
            ("rows", piece), ("seqlens_k", last), ("total_rows", total),
            ("past_key_0", keys), ("past_value_0", values),
        )  # fmt: skip
        for name, array in inputs:
            binding.input(name, array)
        binding.output("present_key_0", keys)
        binding.output("present_value_0", values)
        heads = np.full((1, stop - start, HEADS * HEAD_SIZE), _POISON, np.float32)
        binding.output("heads", heads)
        binding.run()
        binding.sync()
        found[start:stop] = heads[0]
    if _off(found, expected):
        return "attention over an f16 cache gives wrong results"
    key = rows[:, HEADS * HEAD_SIZE : (HEADS + 1) * HEAD_SIZE]
    if _off(keys[0, 0, : len(rows)].astype(np.float32), key):
        return "attention does not store keys in its cache"
    if (keys[0, 0, len(rows) :] != np.float16(_POISON)).any():
        return "attention writes beyond the valid rows of its cache"
    return ""


def _off(found: FloatArray, expected: npt.NDArray[np.floating]) -> bool:
    # Written so that NaN is wrong too.
    return not np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max()


LAYERS = MicroModel(LAYERS_FILE, "convolution, products, softmax", _layers_wrong)
ATTENTION = MicroModel(ATTENTION_FILE, "attention over an f16 cache", _attention_wrong)


def why_wrong(model: MicroModel, graph: Graph) -> str:
    """Run a micro-model and compare with its answer.

    Returns:
        What is wrong, as part of a sentence; empty when the numbers are right.
    """
    try:
        return model.wrong(graph)
    except BoardvoiceError as error:
        cause = error.__cause__
        detail = str(cause if isinstance(error, BackendError) and cause else error.message)
        return f"it fails: {(detail.strip().splitlines() or ['no reason given'])[0].rstrip('.')}"
