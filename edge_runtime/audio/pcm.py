"""Samples as bytes: float to 16-bit integers, and the header of a WAV file."""

from __future__ import annotations

import struct
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from edge_runtime.audio.load import Samples

Subtype: TypeAlias = Literal["PCM_16", "FLOAT"]

_OPEN_SIZE = 0xFFFFFFFF
_INTEGER, _FLOAT = 1, 3


def to_pcm16(audio: Samples) -> npt.NDArray[np.int16]:
    """Float samples to 16-bit integers rounded, clipped, never wrapped around.

    Reading them back over 32768 is exact for samples that came from 16 bits; libsndfile's own
    conversion cuts instead of rounding and may be one step lower.

    Args:
        audio: Any shape, full scale 1, finite.
    """
    scaled = np.rint(np.asarray(audio, dtype=np.float32) * np.float32(32768.0))
    integers: npt.NDArray[np.int16] = np.clip(scaled, -32768.0, 32767.0).astype(np.int16)
    return integers


def to_bytes(audio: Samples, subtype: Subtype) -> bytes:
    """Little-endian bytes of ``[samples]`` float32."""
    if subtype == "FLOAT":
        return audio.astype("<f4", copy=False).tobytes()
    return to_pcm16(audio).astype("<i2", copy=False).tobytes()


def wav_header(sample_rate: int, subtype: Subtype, samples: int | None = None) -> bytes:
    """The bytes before the samples of a mono WAV file.

    Args:
        sample_rate: In Hz.
        subtype: Sample type.
        samples: Number of samples; None, or too many for the format's 32-bit sizes, leaves the
            length open (every size 0xFFFFFFFF, as streaming programs write and read it).
    """
    code, width = (_INTEGER, 2) if subtype == "PCM_16" else (_FLOAT, 4)
    layout = struct.pack("<HHIIHH", code, 1, sample_rate, sample_rate * width, width, width * 8)
    if code == _FLOAT:
        layout += struct.pack("<H", 0)
    body = b"WAVEfmt " + struct.pack("<I", len(layout)) + layout
    closed = samples is not None and samples * width < _OPEN_SIZE - 64
    frames = samples if samples is not None and closed else _OPEN_SIZE
    if code == _FLOAT:
        body += b"fact" + struct.pack("<II", 4, frames)
    data_size = frames * width if closed else _OPEN_SIZE
    riff_size = len(body) + 8 + data_size if closed else _OPEN_SIZE
    return b"RIFF" + struct.pack("<I", riff_size) + body + b"data" + struct.pack("<I", data_size)
