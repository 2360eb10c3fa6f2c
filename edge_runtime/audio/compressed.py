"""Compressed audio out, by the formats that this machine's soundfile can write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import soundfile

from edge_runtime.audio.load import Samples
from edge_runtime.audio.pcm import Subtype, to_pcm16
from edge_runtime.errors import OutputError

# Extension: soundfile's format, and its subtype where samples are not kept as they are.
_FORMATS: dict[str, tuple[str, str | None]] = {
    ".flac": ("FLAC", None),
    ".ogg": ("OGG", "VORBIS"),
    ".opus": ("OGG", "OPUS"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
}
# Long writes overflow the stack of some builds of the Vorbis encoder.
_BLOCK = 16_384


def compressed_extensions() -> list[str]:
    """File extensions of the compressed formats that can be written here."""
    return [
        extension
        for extension, (name, subtype) in _FORMATS.items()
        if soundfile.check_format(name, subtype or "PCM_16")
    ]


def write_compressed(
    stream: IO[Any], extension: str, chunks: Iterator[Samples], sample_rate: int, subtype: Subtype
) -> int:
    """Encode chunks into an open file.

    Args:
        stream: Binary file open for writing, at its start.
        extension: One of `compressed_extensions`.
        chunks: ``[samples]`` float32 each.
        sample_rate: In Hz.
        subtype: Sample type; formats with loss disregard it.

    Returns:
        Number of samples written.

    Raises:
        OutputError: The format cannot hold that sample type or rate, or the file cannot be
            written.
    """
    name, lossy = _FORMATS[extension]
    kind = lossy or subtype
    if not soundfile.check_format(name, kind):
        raise OutputError(
            f"{extension} files cannot hold {subtype} samples.", remedy="Use PCM_16, or .wav."
        )
    sink = _Sink(stream)
    samples = 0
    try:
        with soundfile.SoundFile(
            sink, "w", samplerate=sample_rate, channels=1, format=name, subtype=kind
        ) as file:
            for chunk in chunks:
                for at in range(0, len(chunk), _BLOCK):
                    part = chunk[at : at + _BLOCK]
                    _write(file, to_pcm16(part) if lossy is None else np.clip(part, -1.0, 1.0))
                    sink.check()
                samples += len(chunk)
    except soundfile.LibsndfileError as error:
        sink.check()
        raise OutputError(
            f"{extension} files cannot be written at {sample_rate} Hz: {error.error_string}",
            remedy="Use .wav or .flac.",
        ) from error
    sink.check()
    return samples


def _write(file: soundfile.SoundFile, part: Any) -> None:
    # soundfile asserts that all frames were taken; the sink knows why they were not.
    with contextlib.suppress(AssertionError):
        file.write(part)


class _Sink:
    """A stream for a C library's callbacks, from which no exception can come."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            self._stream.write(data)
        except OSError as error:
            self._error = self._error or error
            return 0
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return int(self._stream.seek(offset, whence))
        except OSError as error:  # seeking flushes, so it meets a full disk too
            self._error = self._error or error
            return -1

    def tell(self) -> int:
        return int(self._stream.tell())

    def check(self) -> None:
        """Raise what a callback met."""
        if self._error is not None:
            raise OutputError(
                f"The audio could not be written: {os.strerror(self._error.errno or 0)}."
            ) from self._error
