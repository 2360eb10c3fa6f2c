"""Inputs of the estimator as they come in real decoding, for scales and calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Array, Binding, Graph
from edge_runtime.bundle import Bundle
from edge_runtime.speech import SpeechOptions
from edge_runtime.voxcpm2.flow import Schedule
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from export.voxcpm2.calibration_speech import CalibrationSpeaker

FloatArray = npt.NDArray[np.float32]

# Of every run the first patch and each so-manyth after it, with all of its evaluations.
_EACH = 6


@dataclass(frozen=True)
class NpuInput:
    """One evaluation, in the NPU's layout, without scales.

    Attributes:
        x: Noisy patch [2, D, P].
        prefix: Tokens of mu, time and condition [2, hidden, 3 + P].
    """

    x: FloatArray
    prefix: FloatArray


def record_inputs(bundle: Bundle, spec: VoxCpm2Spec) -> list[NpuInput]:
    """Speak with the graphs written so far and keep what goes into the estimator.

    Args:
        bundle: Holds the graphs, the embedding and the tokenizer.
        spec: Sizes and files.
    """
    found: list[NpuInput] = []
    schedule = Schedule.of(SpeechOptions().euler_steps)
    per_patch = len(schedule.t) - schedule.zero_steps
    speaker = CalibrationSpeaker(
        bundle, spec, lambda graph: _RecordedGraph(graph, per_patch, found)
    )
    speaker.speak_all()
    return found


class _RecordedGraph:
    """A graph whose bound inputs are kept as they are when it runs. See `Graph`."""

    def __init__(self, graph: Graph, per_patch: int, found: list[NpuInput]) -> None:
        self._graph, self._per_patch, self._found = graph, per_patch, found

    @property
    def name(self) -> str:
        return self._graph.name

    def run(self, feeds: Mapping[str, Array]) -> dict[str, FloatArray]:
        return self._graph.run(feeds)

    def bind(self, *, fixed: bool = False) -> _RecordedBinding:
        return _RecordedBinding(self._graph.bind(fixed=fixed), self._per_patch, self._found)


class _RecordedBinding:
    captured = False

    def __init__(self, binding: Binding, per_patch: int, found: list[NpuInput]) -> None:
        self._binding, self._per_patch, self._found = binding, per_patch, found
        self._inputs: dict[str, Array] = {}
        self._runs = 0

    def input(self, name: str, array: Array) -> None:
        self._inputs[name] = array
        self._binding.input(name, array)

    def output(self, name: str, array: Array) -> None:
        self._binding.output(name, array)

    def run(self, *, give_back: bool = False) -> None:
        if self._runs // self._per_patch % _EACH == 0:
            self._found.append(_npu_input(self._inputs))
        self._runs += 1
        self._binding.run(give_back=give_back)

    def sync(self) -> None:
        self._binding.sync()


def _npu_input(inputs: Mapping[str, Array]) -> NpuInput:
    mu = inputs["mu"]
    shared = np.concatenate([inputs["time_token"], inputs["cond_tokens"]], axis=1)
    prefix = np.concatenate([mu, np.repeat(shared, len(mu), axis=0)], axis=1)
    x = np.repeat(inputs["x"], len(mu), axis=0)
    return NpuInput(
        np.ascontiguousarray(x.transpose(0, 2, 1), np.float32),
        np.ascontiguousarray(prefix.transpose(0, 2, 1), np.float32),
    )
