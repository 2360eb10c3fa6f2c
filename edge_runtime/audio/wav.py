"""Audio out: whole files that appear only when complete, and WAV streams on standard output."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from edge_runtime.atomic import atomic_file
from edge_runtime.audio.compressed import compressed_extensions, write_compressed
from edge_runtime.audio.load import Samples
from edge_runtime.audio.pcm import Subtype, to_bytes, wav_header
from edge_runtime.errors import OutputError

_WAV = (".wav", ".wave")
_HEADERLESS = (".raw", ".pcm")
_MAX_RATE = 768_000


def supported_extensions() -> list[str]:
    """File extensions that `write_wav` takes on this machine."""
    return [*_WAV, *compressed_extensions(), *_HEADERLESS]


def write_wav(
    path: str | os.PathLike[str],
    audio: Samples | Iterable[Samples],
    sample_rate: int,
    *,
    subtype: Subtype = "PCM_16",
    stdout: BinaryIO | None = None,
) -> int:
    """Write mono audio to a file, or stream it to standard output as it arrives.

    A file is written under a temporary name and put in place when complete: on any error,
    raised by ``audio`` itself too, there is no new file and an old one stays.

    Args:
        path: A file whose extension chooses the format (`supported_extensions`; ".raw" and
            ".pcm" are little-endian samples without a header), or ``"-"`` for WAV on standard
            output, its length left open, flushed after every chunk.
        audio: ``[samples]`` float32 at full scale 1, or an iterable of such chunks. PCM_16 and
            compressed formats clip what is beyond full scale.
        sample_rate: In Hz.
        subtype: 16-bit integers or float32. Compressed formats with loss disregard it.
        stdout: Binary stream to write for ``"-"``; the process's own when None.

    Returns:
        Number of samples written.

    Raises:
        OutputError: An extension, rate or sample type that cannot be written; a missing,
            read-only or full folder; a reader that went away; NaN or infinite samples; no
            samples at all.
    """
    if subtype not in ("PCM_16", "FLOAT"):
        raise OutputError(f"Sample type {subtype!r} cannot be written; PCM_16 and FLOAT can.")
    if not 1 <= sample_rate <= _MAX_RATE:
        raise OutputError(f"Audio at {sample_rate} Hz cannot be written.")
    chunks = _checked(audio)
    if str(path) == "-":
        samples = _write_stream(stdout or _standard_output(), chunks, sample_rate, subtype)
    else:
        samples = _write_file(Path(path), chunks, sample_rate, subtype)
    return samples


def _checked(audio: Samples | Iterable[Samples]) -> Iterator[Samples]:
    """The chunks that have samples, each checked; an error if none has."""
    empty = True
    for chunk in [audio] if isinstance(audio, np.ndarray) else audio:
        samples = np.asarray(chunk)
        if samples.ndim != 1 or samples.dtype.kind != "f":
            raise OutputError(
                f"Audio to write has shape {list(samples.shape)} and type {samples.dtype}; "
                "[samples] of floats is due."
            )
        if not np.isfinite(samples).all():
            raise OutputError("Audio to write has a NaN or infinite sample.")
        if len(samples):
            empty = False
            yield samples.astype(np.float32, copy=False)
    if empty:
        raise OutputError("There is no audio to write.")


def _write_file(path: Path, chunks: Iterator[Samples], sample_rate: int, subtype: Subtype) -> int:
    extension = path.suffix.lower()
    _check_target(path, extension)
    body_error: BaseException | None = None
    try:
        with atomic_file(path, "w+b") as stream:
            try:
                if extension in compressed_extensions():
                    return write_compressed(stream, extension, chunks, sample_rate, subtype)
                return _write_plain(stream, path, chunks, sample_rate, subtype)
            except BaseException as error:
                body_error = error
                raise
    except OSError as error:
        if error is body_error:
            raise  # it came from the source of the audio, not from this file
        raise _cannot_write(str(path), error) from error


def _write_plain(
    stream: IO[Any], path: Path, chunks: Iterator[Samples], sample_rate: int, subtype: Subtype
) -> int:
    """Samples as they are, after a header that gets its sizes at the end."""
    samples = 0
    name, extension = str(path), path.suffix.lower()
    with _writing(name):
        if extension in _WAV:
            stream.write(wav_header(sample_rate, subtype))
    for chunk in chunks:
        with _writing(name):
            stream.write(to_bytes(chunk, subtype))
        samples += len(chunk)
    with _writing(name):
        if extension in _WAV:
            stream.seek(0)
            stream.write(wav_header(sample_rate, subtype, samples))
    return samples


def _write_stream(
    stream: BinaryIO, chunks: Iterator[Samples], sample_rate: int, subtype: Subtype
) -> int:
    if stream.isatty():
        raise OutputError(
            "Audio is not written to a terminal.", remedy="Pipe it to a player or into a file."
        )
    samples = 0
    for chunk in chunks:
        # The header waits for the first chunk: a request that fails leaves the pipe empty.
        head = b"" if samples else wav_header(sample_rate, subtype)
        try:
            _write_all(stream, head + to_bytes(chunk, subtype))
            stream.flush()
        except BrokenPipeError as error:
            _drop_unwritten(stream)
            raise OutputError(
                "The reader of standard output went away.", remedy="Read it to its end."
            ) from error
        except (OSError, ValueError) as error:
            raise _cannot_write("Standard output", error) from error
        samples += len(chunk)
    return samples


def _write_all(stream: BinaryIO, data: bytes) -> None:
    # An unbuffered standard output may take less than it is given.
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) or 0 :]


def _drop_unwritten(stream: BinaryIO) -> None:
    """Send what is left in standard output's buffer nowhere, or Python complains at exit."""
    if sys.stdout is None or stream is not getattr(sys.stdout, "buffer", None):
        return
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _standard_output() -> BinaryIO:
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        raise OutputError("Standard output is closed or takes no bytes.")
    found: BinaryIO = stream
    return found


def _check_target(path: Path, extension: str) -> None:
    if extension not in supported_extensions():
        raise OutputError(
            f"{path} has the extension {extension!r}, which cannot be written.",
            remedy=f"Use one of {', '.join(supported_extensions())}.",
        )
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # nothing there, or opening it will say what is wrong
    if not stat.S_ISREG(mode):
        # A rename would replace a device or pipe instead of writing to it.
        raise OutputError(f"{path} is not a regular file.", remedy="Use '-' to write to a pipe.")


@contextlib.contextmanager
def _writing(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot_write(what, error) from error


def _cannot_write(what: str, error: Exception) -> OutputError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return OutputError(f"{what} cannot be written: {reason}.")
