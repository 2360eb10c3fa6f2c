"""Samples to the bytes of an audio format, as they come."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from boardvoice.server.time_stretch import TimeStretch
from edge_runtime.audio.compressed import compressed_extensions
from edge_runtime.audio.pcm import to_bytes, to_pcm16, wav_header
from edge_runtime.errors import OutputError

FloatArray = npt.NDArray[np.float32]

# What OpenAI's clients take headerless samples to be.
PCM_RATE = 24_000
MEDIA_TYPES = {
    "wav": "audio/wav", "pcm": "audio/pcm", "flac": "audio/flac", "opus": "audio/ogg",
    "mp3": "audio/mpeg",
}  # fmt: skip
_SOUNDFILE = {
    "flac": ("FLAC", "PCM_16"), "opus": ("OGG", "OPUS"), "mp3": ("MP3", "MPEG_LAYER_III"),
}  # fmt: skip
# Long writes overflow the stack of some builds of encoders.
_BLOCK = 16_384


def audio_formats() -> list[str]:
    """Formats that can be sent from this machine."""
    here = compressed_extensions()
    return [name for name in MEDIA_TYPES if name not in _SOUNDFILE or f".{name}" in here]


class AudioEncoder:
    """Speed, then sample rate, then format, in pieces.

    Args:
        audio_format: One of `audio_formats`.
        model_rate: Rate of the samples that come, in Hz.
        sample_rate: Rate to send, in Hz; None for the format's own.
        speed: Above 1 is faster, at the same pitch.

    Attributes:
        sample_rate: Rate that is sent, in Hz.

    Raises:
        OutputError: The format cannot hold that rate, or there is no encoder for it here.
    """

    def __init__(
        self, audio_format: str, model_rate: int, sample_rate: int | None, speed: float
    ) -> None:
        if audio_format not in audio_formats():
            raise OutputError(
                f"There is no encoder for {audio_format} here.",
                remedy=f"Use {', '.join(audio_formats())}.",
            )
        self.sample_rate = sample_rate or (PCM_RATE if audio_format == "pcm" else model_rate)
        self._format = audio_format
        self._stretch = TimeStretch(model_rate, speed)
        self._resample = (
            soxr.ResampleStream(model_rate, self.sample_rate, 1, dtype="float32", quality="HQ")
            if self.sample_rate != model_rate
            else None
        )
        self._sink = _Forward()
        self._file: Any = None
        if audio_format == "wav":
            self._sink.write(wav_header(self.sample_rate, "PCM_16"))
        elif audio_format in _SOUNDFILE:
            name, kind = _SOUNDFILE[audio_format]
            # Readers tell the length of an MP3 without a table from its size.
            constant: dict[str, Any] = (
                {"bitrate_mode": "CONSTANT", "compression_level": 0.5} if name == "MP3" else {}
            )
            try:
                self._file = soundfile.SoundFile(
                    self._sink, "w", samplerate=self.sample_rate, channels=1, format=name,
                    subtype=kind, **constant,
                )  # fmt: skip
            except soundfile.LibsndfileError as error:
                raise OutputError(
                    f"{audio_format} cannot be sent at {self.sample_rate} Hz.",
                    remedy="Give another sample_rate, such as 48000, or use wav.",
                ) from error

    def push(self, samples: FloatArray) -> bytes:
        """Take samples [n]; return the bytes that are ready."""
        return self._encode(self._stretch.push(samples), last=False)

    def finish(self) -> bytes:
        """The rest."""
        data = self._encode(self._stretch.finish(), last=True)
        self.close()
        return data + self._sink.take()

    def close(self) -> None:
        """Give the encoder's memory back; later calls change nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _encode(self, samples: FloatArray, *, last: bool) -> bytes:
        if self._resample is not None:
            samples = np.asarray(self._resample.resample_chunk(samples, last=last), np.float32)
        if self._file is None:
            self._sink.write(to_bytes(samples, "PCM_16"))
        else:
            for at in range(0, len(samples), _BLOCK):
                part = samples[at : at + _BLOCK]
                flac = self._format == "flac"
                # soundfile asserts that all was taken; this sink takes everything.
                with contextlib.suppress(AssertionError):
                    self._file.write(to_pcm16(part) if flac else np.clip(part, -1.0, 1.0))
        return self._sink.take()


class _Forward:
    """A file that only goes forward: what an encoder rewrites at its end was sent already."""

    def __init__(self) -> None:
        self._ready = bytearray()
        self._at = 0
        self._end = 0

    def write(self, data: bytes) -> int:
        new = bytes(data)[max(self._end - self._at, 0) :]
        self._ready += new
        self._at += len(data)
        self._end = max(self._end, self._at)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def take(self) -> bytes:
        data = bytes(self._ready)
        self._ready.clear()
        return data
