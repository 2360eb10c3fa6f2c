"""A clip's features to content tokens and to a voice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph
from edge_runtime.errors import AudioError
from edge_runtime.miocodec.bound_run import bound_run
from edge_runtime.miocodec.fsq import Quantizer, TokenArray
from edge_runtime.miocodec.spec import GraphName, MioCodecSpec
from edge_runtime.miocodec.stack_run import StackPorts, run_stack

FloatArray = npt.NDArray[np.float32]
LookAt = Callable[[GraphName, int], None]

_EPS = 1e-8


class ContentEncoder:
    """Encodes features.

    Args:
        graphs: The graphs.
        spec: Sizes.
        look: Told every run.
    """

    def __init__(self, graphs: Mapping[GraphName, Graph], spec: MioCodecSpec, look: LookAt) -> None:
        self._graphs = graphs
        self._spec = spec
        self._look = look
        self._quantizer = Quantizer(spec.levels)

    def tokens(self, features: Mapping[int, FloatArray]) -> TokenArray:
        """Tokens [T // downsampling] of features [T, width] by layer.

        Raises:
            AudioError: Too few rows.
        """
        return self._quantizer.tokens(self.latents(features))

    def latents(self, features: Mapping[int, FloatArray]) -> FloatArray:
        """Latents [T // downsampling, levels], before they are rounded."""
        rows = normalised(averaged(features, self._spec.local_layers))
        if len(rows) < max(self._spec.downsampling, 2):
            raise AudioError("The audio is too short to hold a token.")
        ports = StackPorts(
            "features", "latents", len(self._spec.levels), fewer=self._spec.downsampling
        )
        return run_stack(
            self._graphs["content"], self._spec.content, rows, ports,
            look=lambda count: self._look("content", count),
        )  # fmt: skip

    def voice(self, features: Mapping[int, FloatArray]) -> FloatArray:
        """The voice [width] of features [T, width] by layer."""
        rows = averaged(features, self._spec.global_layers)
        self._look("voice", len(rows))
        shape = (1, self._spec.voice_width)
        found = bound_run(self._graphs["voice"], {"features": rows}, {"voice": shape})
        voice: FloatArray = found["voice"].reshape(-1)
        return voice


def padding(spec: MioCodecSpec, samples: int) -> int:
    """Zeros to put on either side of a clip, so that every started row of features is whole.

    Args:
        spec: Sizes.
        samples: At the codec's rate.
    """
    rate = spec.sample_rate
    rows = -(-(samples * spec.ssl_rate) // (spec.ssl_hop * rate))
    needed = ((rows - 1) * spec.ssl_hop + spec.ssl_window) / spec.ssl_rate * rate
    return max(int(np.ceil((needed - samples) / 2)), 0)


def averaged(features: Mapping[int, FloatArray], layers: tuple[int, ...]) -> FloatArray:
    """Mean of some layers' features."""
    total = features[layers[0]].astype(np.float32, copy=True)
    for layer in layers[1:]:
        total += features[layer]
    total *= np.float32(1 / len(layers))
    return total


def normalised(rows: FloatArray) -> FloatArray:
    """Each column with mean 0 and (unbiased) deviation 1 over time."""
    if len(rows) < 2:
        return rows
    mean = rows.mean(axis=0, dtype=np.float64)
    spread = rows.std(axis=0, dtype=np.float64, ddof=1)
    scaled: FloatArray = ((rows - mean.astype(np.float32)) / (spread + _EPS)).astype(np.float32)
    return scaled
