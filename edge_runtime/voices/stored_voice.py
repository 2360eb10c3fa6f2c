"""One voice of the store, as a request takes it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_runtime.atomic import make_folder
from edge_runtime.audio.load import Samples
from edge_runtime.errors import VoiceError
from edge_runtime.sealed_file import TornFileError, read_sealed, write_sealed
from edge_runtime.voices.clip import decoded

FloatArray = npt.NDArray[np.float32]

_LOG = logging.getLogger("boardvoice")
LATENTS = "latents"


@dataclass(frozen=True)
class EncodedVoice:
    """A clip as an encoder of one kind of bundle made it.

    Attributes:
        reference: Patches [N, P, D], the clip padded at its end.
        prompt: Patches [N, P, D], the clip padded at its start; None without a transcript.
    """

    reference: FloatArray
    prompt: FloatArray | None = None


@dataclass(frozen=True)
class StoredVoice:
    """A voice that was found whole when it was looked at.

    Attributes:
        name: Its name.
        file: Where its clip lies.
        clip: SHA-256 of the clip.
        seconds: Length of the clip.
        sample_rate: Rate of the clip in Hz.
        added: When it was added, UTC.
        transcript: What is said in the clip; empty where that is not known.
    """

    name: str
    file: Path
    clip: str
    seconds: float
    sample_rate: int
    added: str
    transcript: str = ""

    @property
    def identity(self) -> str:
        """The same for the same sound, whatever the name."""
        return hashlib.sha256(f"{self.clip}\n{self.transcript}".encode()).hexdigest()

    @property
    def prompt_text(self) -> str:
        """The transcript as it leads a text; both are joined as they are."""
        wide = unicodedata.east_asian_width(self.transcript[-1:] or " ") in "WF"
        return self.transcript if wide else f"{self.transcript} "

    def audio(self) -> tuple[Samples, int]:
        """Samples ``[n]`` float32 of the clip, and their rate in Hz.

        Raises:
            VoiceError: It was removed or damaged meanwhile.
        """
        try:
            _, flac = read_sealed(self.file)
        except (FileNotFoundError, TornFileError) as error:
            raise VoiceError(f"The voice {self.name!r} is no longer there.") from error
        if hashlib.sha256(flac).hexdigest() != self.clip:
            raise VoiceError(f"The voice {self.name!r} was replaced.", remedy="Ask again.")
        return decoded(flac)

    def encoded(self, encoder: str) -> EncodedVoice | None:
        """What an encoder made of the clip, if that was kept.

        Args:
            encoder: Fingerprint of the bundle's encoder.
        """
        file = self._latents(encoder)
        try:
            details, payload = read_sealed(file)
            if (details["clip"], details["encoder"]) != (self.clip, encoder):
                return None
            reference, rest = _array(details["reference"], payload)
            prompt, rest = _array(details["prompt"], rest) if self.transcript else (None, rest)
            return EncodedVoice(reference, prompt)
        except FileNotFoundError:
            return None
        except (TornFileError, KeyError, TypeError, ValueError) as error:
            # The clip is still there: it is encoded again.
            _LOG.warning("%s is passed over: %s.", file, error)
            return None

    def keep_encoded(self, encoder: str, encoded: EncodedVoice) -> None:
        """Keep what an encoder made of the clip.

        Raises:
            OSError: It cannot be written.
        """
        arrays = [encoded.reference, *([] if encoded.prompt is None else [encoded.prompt])]
        details = {
            "clip": self.clip,
            "encoder": encoder,
            "reference": list(encoded.reference.shape),
            "prompt": None if encoded.prompt is None else list(encoded.prompt.shape),
        }
        payload = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
        file = self._latents(encoder)
        make_folder(file.parent)
        write_sealed(file, details, payload)

    def try_keep_encoded(self, encoder: str, encoded: EncodedVoice) -> None:
        """Keep it if that can be done; otherwise it is encoded again the next time."""
        with contextlib.suppress(OSError):
            self.keep_encoded(encoder, encoded)

    @property
    def latents_prefix(self) -> str:
        """Start of the names of the files that `keep_encoded` writes."""
        return self.identity[:32]

    def _latents(self, encoder: str) -> Path:
        return self.file.parent / LATENTS / f"{self.latents_prefix}-{encoder[:32]}"


def _array(shape: list[int], data: bytes) -> tuple[FloatArray, bytes]:
    count = 4 * int(np.prod(shape))
    array = np.frombuffer(data[:count], "<f4").reshape(shape).astype(np.float32)
    return array, data[count:]
