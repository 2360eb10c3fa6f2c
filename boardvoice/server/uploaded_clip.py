"""Recordings that come over the network: few formats, and no more than a header and its data say.

Everything is read from memory, in blocks, up to a fixed length: small files that decode to hours of
audio end there.
"""

from __future__ import annotations

import io

import soundfile

from edge_runtime.audio.load import Samples, read_audio
from edge_runtime.errors import AudioError

MAX_SECONDS = 60.0
_RATES = (8_000, 96_000)
_MOST_CHANNELS = 2
_KINDS = {"WAV": "WAV", "WAVEX": "WAV", "FLAC": "FLAC", "OGG": "OGG", "MP3": "MP3"}
# A stream's header leaves its length open: nothing, or as much as fits.
_OPEN = 0x7FFF_0000
# Samples decoded to floats, their mono mix and what trimming looks at.
_BYTES_PER_SAMPLE = 16


def memory_needed(upload: int) -> int:
    """Bytes that an upload of so many bytes may take while it is read."""
    return 2 * upload + _BYTES_PER_SAMPLE * int(MAX_SECONDS) * _RATES[1]


def read_upload(data: bytes) -> tuple[Samples, int]:
    """Mono samples ``[n]`` float32 of an uploaded recording, and their rate in Hz.

    Raises:
        AudioError: Another format, a length that is not what the header claims, too long, or a
            rate or a number of channels that no recording of a voice has.
    """
    kind = _kind(data)
    if kind == "WAV":
        data = _mended(data)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            found, frames = _KINDS.get(file.format), int(file.frames)
            rate, channels = int(file.samplerate), int(file.channels)
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise AudioError(
            f"The file cannot be read as {kind}: {getattr(error, 'error_string', error)}"
        ) from error
    if found != kind:
        raise _unknown()
    if not _RATES[0] <= rate <= _RATES[1]:
        raise AudioError(
            f"The file has a rate of {rate} Hz; {_RATES[0]} to {_RATES[1]} Hz are taken."
        )
    if not 1 <= channels <= _MOST_CHANNELS:
        raise AudioError(f"The file has {channels} channels; 1 or 2 are taken.")
    mono, rate = read_audio(data, max_seconds=MAX_SECONDS)
    if kind in ("WAV", "FLAC") and 0 < frames < _OPEN and frames != len(mono):
        raise AudioError(
            f"The file claims {frames} samples and holds {len(mono)}.", remedy="Send it again."
        )
    return mono, rate


def _kind(data: bytes) -> str:
    """By its first bytes, so that no other reader of libsndfile's many gets to see it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "WAV"
    if data[:4] == b"fLaC":
        return "FLAC"
    if data[:4] == b"OggS":
        return "OGG"
    if data[:3] == b"ID3" or (data[:1] == b"\xff" and len(data) > 1 and data[1] & 0xE0 == 0xE0):
        return "MP3"
    raise _unknown()


def _mended(data: bytes) -> bytes:
    """A WAV file with its lengths as they are, where its header leaves them open.

    Raises:
        AudioError: It claims more than there is, or has no samples.
    """
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        rest = len(data) - at - 8
        if name == b"data":
            if size < _OPEN and 0 < size <= rest:
                return data
            if 0 < size < _OPEN:
                raise AudioError(
                    f"The file is torn: it claims {size} bytes of samples and holds {rest}.",
                    remedy="Send it again.",
                )
            head = data[: at + 4]
            riff = (len(data) - 8).to_bytes(4, "little")
            return head[:4] + riff + head[8:] + rest.to_bytes(4, "little") + data[at + 8 :]
        at += 8 + size + size % 2
    raise AudioError("The file is torn: it has no samples.", remedy="Send it again.")


def _unknown() -> AudioError:
    return AudioError("The file is no WAV, FLAC, OGG or MP3.", remedy="Send one of these.")
