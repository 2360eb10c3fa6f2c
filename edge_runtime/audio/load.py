"""Reference audio in: any file that soundfile reads, or an array, to mono float32 at one rate."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from edge_runtime.errors import AudioError

Samples: TypeAlias = npt.NDArray[np.float32]
AudioSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | BinaryIO | tuple[npt.NDArray[Any], int]"
)

MIN_SECONDS = 0.05
MAX_SECONDS = 60.0
_RATES = range(1_000, 768_001)
_MAX_CHANNELS = 64
_BLOCK_FRAMES = 65_536
_MAX_PIPED_BYTES = 256 << 20
_OPEN_ENDED = 0x7FFF_0000
_EMPTY_WAV = 44
# Beyond any float recording; integer samples that were never scaled reach it.
_MAX_PEAK = 100.0


def load_audio(
    source: AudioSource, sample_rate: int, *, max_seconds: float = MAX_SECONDS
) -> Samples:
    """Load audio as the official package does: channels averaged, then resampled by soxr HQ.

    Args:
        source: A path; a file's bytes; a binary file object; or ``(array, rate in Hz)`` with
            samples ``[frames]`` or ``[frames, channels]``, floats in -1..1 or int16, int32 or
            uint8 at full scale.
        sample_rate: Rate wanted, in Hz.
        max_seconds: Longest audio taken. A file is read in blocks and never beyond this, so a
            header's claim costs no memory.

    Returns:
        ``[samples]`` float32, C-contiguous; ``ceil(frames * sample_rate / rate)`` of them.

    Raises:
        AudioError: Missing, a folder, not audio, torn; no samples, shorter than 50 ms, longer
            than ``max_seconds``; NaN or infinite samples, all silent; a rate or a number of
            channels that no recording has.

    Source: ``librosa.load(path, sr=sample_rate, mono=True)``.
    """
    mono, rate = read_audio(source, max_seconds=max_seconds)
    return resample(mono, rate, sample_rate)


def read_audio(source: AudioSource, *, max_seconds: float = MAX_SECONDS) -> tuple[Samples, int]:
    """As `load_audio`, at the rate that the audio has: ``[samples]`` float32 and Hz."""
    name, mono, rate = _read(source, max_seconds)
    seconds = len(mono) / rate
    if not len(mono):
        raise AudioError(f"{name} has no samples.")
    if seconds < MIN_SECONDS:
        raise AudioError(
            f"{name} is {seconds * 1000:.0f} ms long; "
            f"{MIN_SECONDS * 1000:.0f} ms is the least that can be used.",
            remedy="Use a few seconds of clear speech.",
        )
    if not np.isfinite(mono).all():
        where = int(np.argmin(np.isfinite(mono)))
        raise AudioError(f"{name} has a NaN or infinite sample at {where / rate:.3f} s.")
    peak = float(np.abs(mono).max())
    if peak == 0.0:
        raise AudioError(f"{name} is silent: every sample is 0 once its channels are averaged.")
    if peak > _MAX_PEAK:
        raise AudioError(
            f"{name} has samples up to {peak:.4g}; full scale is 1.",
            remedy="Divide them by the full scale of their integer type.",
        )
    return mono, rate


def resample(mono: Samples, rate: int, sample_rate: int) -> Samples:
    """Samples ``[n]`` at another rate, by soxr HQ."""
    if rate == sample_rate:
        return np.ascontiguousarray(mono)
    # librosa's rule: the length is the ceiling in float64, whatever the resampler returns.
    length = math.ceil(len(mono) * (float(sample_rate) / rate))
    resampled = np.asarray(soxr.resample(mono, rate, sample_rate, quality="HQ"), dtype=np.float32)
    if len(resampled) < length:
        resampled = np.pad(resampled, (0, length - len(resampled)))
    return np.ascontiguousarray(resampled[:length])


def _read(source: AudioSource, max_seconds: float) -> tuple[str, Samples, int]:
    if isinstance(source, tuple):
        return "The audio array", *_from_array(source, max_seconds)
    if isinstance(source, (bytes, bytearray)):
        return "The audio data", *_from_stream(io.BytesIO(source), "The audio data", max_seconds)
    if isinstance(source, (str, os.PathLike)):
        return str(source), *_from_path(Path(source), max_seconds)
    if not hasattr(source, "read") or isinstance(source, io.TextIOBase):
        raise AudioError(
            f"Audio cannot be read from a {type(source).__name__}.",
            remedy="Give a path, bytes, a binary file or (array, rate).",
        )
    name = str(getattr(source, "name", "The audio stream"))
    return name, *_from_stream(_seekable(source, name), name, max_seconds)


def _check_whole(stream: BinaryIO, name: str) -> None:
    """Refuse a WAV file that ends before its header says; the decoder would not tell."""
    start = stream.tell()
    head = stream.read(12)
    found = stream.seek(0, io.SEEK_END) - start
    stream.seek(start)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return
    claimed = int.from_bytes(head[4:8], "little") + 8
    # A stream's header leaves its length open: 0, or as much as fits.
    if found < claimed < _OPEN_ENDED and claimed > _EMPTY_WAV:
        raise AudioError(
            f"{name} is torn: {found} bytes of {claimed}.", remedy="Copy or record it again."
        )


def _seekable(stream: BinaryIO, name: str) -> BinaryIO:
    """The stream itself, or its data where it is a pipe."""
    seekable = getattr(stream, "seekable", None)
    if seekable is None or seekable():
        return stream
    data = stream.read(_MAX_PIPED_BYTES + 1)
    if len(data) > _MAX_PIPED_BYTES:
        raise AudioError(f"{name} holds more than {_MAX_PIPED_BYTES >> 20} MiB.")
    return io.BytesIO(data)


def _from_path(path: Path, max_seconds: float) -> tuple[Samples, int]:
    try:
        if path.is_dir():
            raise AudioError(f"{path} is a folder, not an audio file.")
        if path.exists() and not path.is_file():
            raise AudioError(f"{path} is a device or pipe, not an audio file.")
        with open(path, "rb") as stream:
            return _from_stream(stream, str(path), max_seconds)
    except FileNotFoundError as error:
        raise AudioError(f"There is no audio file {path}.") from error
    except (OSError, ValueError) as error:
        raise AudioError(f"{path} cannot be read: {error}.") from error


def _from_stream(stream: BinaryIO, name: str, max_seconds: float) -> tuple[Samples, int]:
    _check_whole(stream, name)
    try:
        with soundfile.SoundFile(stream) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            _check_layout(name, rate, channels)
            limit = math.floor(max_seconds * rate)
            declared = int(file.frames)
            if declared > limit and file.format != "MP3" and not _is_open_ended(declared):
                raise _too_long(name, declared / rate, max_seconds)
            blocks: list[Samples] = []
            frames = 0
            for block in _blocks(file):
                frames += len(block)
                if frames > limit:
                    raise _too_long(name, max(declared, frames) / rate, max_seconds)
                blocks.append(np.mean(block, axis=1))
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise AudioError(
            f"{name} is not audio that can be read, or it is torn: "
            f"{getattr(error, 'error_string', error)}",
            remedy="Use WAV, FLAC, OGG or MP3.",
        ) from error
    return (np.concatenate(blocks) if blocks else np.empty(0, np.float32)), rate


def _blocks(file: soundfile.SoundFile) -> Iterator[Samples]:
    while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
        yield block


def _is_open_ended(frames: int) -> bool:
    """Whether a header gives no real length, as streamed files do."""
    return frames >= 2**31 - 1


def _from_array(source: tuple[npt.NDArray[Any], int], max_seconds: float) -> tuple[Samples, int]:
    name = "The audio array"
    if len(source) != 2:
        raise AudioError("An audio array comes as a pair: (samples, rate in Hz).")
    array, rate = np.asarray(source[0]), source[1]
    if isinstance(rate, bool) or not isinstance(rate, (int, np.integer)):
        raise AudioError(f"The rate of an audio array is a whole number of Hz, not {rate!r}.")
    if array.ndim not in (1, 2):
        raise AudioError(
            f"{name} has shape {list(array.shape)}; [frames] or [frames, channels] is due."
        )
    channels = array.shape[1] if array.ndim == 2 else 1
    if array.ndim == 2 and channels > max(array.shape[0], 1):
        raise AudioError(
            f"{name} has {array.shape[0]} frames of {channels} channels.",
            remedy="Transpose it: frames come first.",
        )
    _check_layout(name, int(rate), channels)
    if array.shape[0] > max_seconds * rate:
        raise _too_long(name, array.shape[0] / rate, max_seconds)
    samples = _to_float(array)
    return (np.mean(samples, axis=1) if samples.ndim == 2 else samples), int(rate)


def _to_float(array: npt.NDArray[Any]) -> Samples:
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what overflows is refused as infinite
            return array.astype(np.float32)
    if array.dtype == np.uint8:
        return (array.astype(np.float32) - np.float32(128.0)) / np.float32(128.0)
    if array.dtype in (np.int16, np.int32):
        return (array / -float(np.iinfo(array.dtype).min)).astype(np.float32)
    raise AudioError(
        f"Audio samples of type {array.dtype} are not understood.",
        remedy="Give floats in -1..1, int16, int32 or uint8.",
    )


def _check_layout(name: str, rate: int, channels: int) -> None:
    if rate not in _RATES:
        raise AudioError(
            f"{name} has a rate of {rate} Hz; {_RATES.start} to {_RATES.stop - 1} Hz can be used."
        )
    if not 1 <= channels <= _MAX_CHANNELS:
        raise AudioError(f"{name} has {channels} channels; 1 to {_MAX_CHANNELS} can be used.")


def _too_long(name: str, seconds: float, max_seconds: float) -> AudioError:
    return AudioError(
        f"{name} is {seconds:.1f} s long; the limit is {max_seconds:g} s.",
        remedy="Cut it to a few seconds of clear speech.",
    )
