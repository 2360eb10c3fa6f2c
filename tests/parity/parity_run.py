"""What one run leaves behind, on either side, and how far two runs are apart."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from parity_cases import FloatArray


@dataclass
class Run:
    """One run over one text.

    Attributes:
        tokens: Ids of prompt text and text.
        encodings: Patches [N, P, D] of ``reference`` and ``prompt``, where there are such.
        hidden: Base LM after the quantizer, every prefix row [S, hidden].
        residual: Residual LM, last prefix row [hidden].
        latents: Patches [N, P, D] of the reply.
        stop_logits: Scores of "go on" and "stop" beside each patch [N, 2].
        audio: Samples of the whole reply.
        streamed: The reply's chunks put together.
        quantizer_margin: Smallest distance of a quantizer value, in its own units, to where it
            would round the other way. Only the official side measures it.
    """

    tokens: list[int]
    encodings: dict[str, FloatArray]
    hidden: FloatArray
    residual: FloatArray
    latents: FloatArray
    stop_logits: FloatArray
    audio: FloatArray
    streamed: FloatArray = field(default_factory=lambda: np.empty(0, np.float32))
    quantizer_margin: float = np.inf

    @property
    def stops(self) -> npt.NDArray[np.bool_]:
        """Whether the model wants to stop, beside each patch."""
        return self.stop_logits.argmax(axis=1) == 1

    @property
    def stop_margin(self) -> float:
        """Smallest distance of the two stop logits."""
        return float(np.abs(self.stop_logits[:, 1] - self.stop_logits[:, 0]).min())


def error(ours: FloatArray, theirs: FloatArray) -> float:
    """Largest deviation as a share of the reference's peak."""
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def errors(ours: Run, theirs: Run) -> dict[str, float]:
    """Every tensor's error; tokens, shapes and stop decisions must be equal."""
    assert ours.tokens == theirs.tokens
    assert ours.encodings.keys() == theirs.encodings.keys()
    assert ours.latents.shape == theirs.latents.shape
    assert (ours.stops == theirs.stops).all()
    found = {
        f"{name} encoding": error(patches, theirs.encodings[name])
        for name, patches in ours.encodings.items()
    }
    for name in ("hidden", "residual", "latents", "stop_logits", "audio"):
        found[name] = error(getattr(ours, name), getattr(theirs, name))
    return found
