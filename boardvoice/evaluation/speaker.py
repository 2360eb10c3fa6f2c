"""How alike two voices are: resemblyzer's embeddings, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from boardvoice.evaluation.checks import FloatArray
from edge_runtime.errors import DependencyError


class SpeakerModel:
    """Compares voices with that of a reference.

    Args:
        reference: Audio at 16 kHz.

    Raises:
        DependencyError: resemblyzer is not installed.
    """

    def __init__(self, reference: FloatArray) -> None:
        try:
            from resemblyzer import VoiceEncoder
        except ImportError as error:
            raise DependencyError(
                "Speaker similarity needs resemblyzer.",
                remedy="pip install resemblyzer, or leave --reference out.",
            ) from error
        self._encoder: Any = VoiceEncoder("cpu", verbose=False)
        self._wanted = self._encoder.embed_utterance(reference)

    def similarity(self, audio: FloatArray) -> float:
        """Cosine, 1 for the same voice; two voices of one sex are often at 0.6."""
        return float(np.dot(self._wanted, self._encoder.embed_utterance(audio)))
