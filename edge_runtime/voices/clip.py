"""The clip of a stored voice: trimmed, checked and kept as FLAC."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import soundfile

from edge_runtime.audio.load import AudioSource, Samples, read_audio, resample
from edge_runtime.audio.pcm import to_pcm16
from edge_runtime.audio.trim import trim_silence
from edge_runtime.errors import AudioError

MIN_SECONDS = 1.0
MAX_SECONDS = 30.0
# No encoder here takes more.
_MAX_RATE = 48_000
# As long may a recording be before its silence is cut off.
_MAX_UNTRIMMED = 60.0
# So close to full scale, and so many samples in a row: cut off, not just loud.
_FULL = 0.999
_RUN = 3
_MOST_CLIPPED = 0.005
_SOME_CLIPPED = 0.0002
_QUIET = 0.03


@dataclass(frozen=True)
class Clip:
    """A clip that a voice can be made of.

    Attributes:
        flac: The file that is kept, 16 bits, mono.
        sample_rate: In Hz.
        seconds: Its length.
        notes: What its owner should know.
    """

    flac: bytes
    sample_rate: int
    seconds: float
    notes: tuple[str, ...] = ()

    def audio(self) -> tuple[Samples, int]:
        """Samples ``[n]`` float32, and their rate in Hz."""
        return decoded(self.flac)


def read_clip(source: AudioSource) -> Clip:
    """Make a clip of a recording: one channel, silence trimmed, 48 kHz at most.

    Raises:
        AudioError: It cannot be read, is shorter than 1 s or longer than 30 s without its
            silence, or is clipped.
    """
    audio, rate = read_audio(source, max_seconds=_MAX_UNTRIMMED)
    notes = []
    clipped = _clipped_share(audio)
    if clipped > _MOST_CLIPPED:
        raise AudioError(
            f"The clip is clipped: {clipped:.1%} of its samples are cut off at full scale.",
            remedy="Record it again with less gain.",
        )
    if clipped > _SOME_CLIPPED:
        notes.append(f"{clipped:.2%} of the samples are cut off at full scale.")
    if rate > _MAX_RATE:
        audio, rate = resample(audio, rate, _MAX_RATE), _MAX_RATE
    audio = trim_silence(audio, rate)
    seconds = len(audio) / rate
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise AudioError(
            f"The clip has {seconds:.2f} s between its silent ends; {MIN_SECONDS:g} to "
            f"{MAX_SECONDS:g} s are due.",
            remedy="Record 5 to 15 s of clear speech.",
        )
    peak = float(np.abs(audio).max())
    if peak > 1.0:
        audio = audio / np.float32(peak)
        notes.append(f"Samples went up to {peak:.2f}: the clip was made quieter.")
    if peak < _QUIET:
        notes.append("The clip is very quiet.")
    stream = io.BytesIO()
    soundfile.write(stream, to_pcm16(audio), rate, format="FLAC", subtype="PCM_16")
    return Clip(stream.getvalue(), rate, seconds, tuple(notes))


def decoded(flac: bytes) -> tuple[Samples, int]:
    """Samples ``[n]`` float32 of a kept clip, and their rate in Hz."""
    samples, rate = soundfile.read(io.BytesIO(flac), dtype="float32")
    return samples, int(rate)


def _clipped_share(audio: Samples) -> float:
    """Share of samples in runs at full scale; where a recording goes beyond 1, that is its own."""
    full = np.abs(audio) >= _FULL * max(1.0, float(np.abs(audio).max()))
    edges = np.flatnonzero(np.diff(np.concatenate([[False], full, [False]]).astype(np.int8)))
    lengths = edges[1::2] - edges[::2]
    return float(lengths[lengths >= _RUN].sum()) / len(audio)
