"""The voices of this device, in the state folder.

``voices/NAME.voice`` holds a clip with its transcript, and is the voice: it is there or not.
``voices/latents/`` holds what encoders made of clips. It can be made again, and is written first,
so that a voice which is there was encoded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edge_runtime.atomic import make_folder, remove_file, remove_leftovers
from edge_runtime.audio.load import AudioSource, Samples
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import OutputError, TextError, VoiceError
from edge_runtime.sealed_file import TornFileError, read_sealed, write_sealed
from edge_runtime.state_folder import state_folder
from edge_runtime.text.normalize import normalize_text
from edge_runtime.voices.clip import read_clip
from edge_runtime.voices.names import check_name, is_name
from edge_runtime.voices.stored_voice import LATENTS, EncodedVoice, StoredVoice

FloatArray = npt.NDArray[np.float32]

FOLDER = "voices"
_SUFFIX = ".voice"
_FORMAT = 1
_MAX_TRANSCRIPT = 1000
# Encoders whose latents of one clip are kept.
_MOST_ENCODERS = 4
_LOG = logging.getLogger("boardvoice")


class Encoder(Protocol):
    """A loaded bundle, as far as the store needs it."""

    @property
    def encoder(self) -> str:
        """Fingerprint of its encoder."""
        ...

    def encode(
        self, audio: tuple[Samples, int], *, prompt: bool, cancel: CancelToken | None = None
    ) -> EncodedVoice:
        """Encode a clip."""
        ...


@dataclass(frozen=True)
class TornVoice:
    """An entry that cannot be used.

    Attributes:
        name: Its name.
        file: Where it lies.
        reason: What is wrong with it.
    """

    name: str
    file: Path
    reason: str


class VoiceStore:
    """Reads the folder anew whenever it is asked; another process may add voices meanwhile.

    Args:
        state: The state folder; this device's unless given.
    """

    def __init__(self, state: Path | None = None) -> None:
        self.folder = (state or state_folder()) / FOLDER
        # Entries that were read, by file, while size, time and inode stay the same.
        self._read: dict[Path, tuple[tuple[int, ...], StoredVoice | TornVoice]] = {}
        self._told: set[tuple[Path, str]] = set()

    def voices(self) -> list[StoredVoice]:
        """Every voice that is whole, by name."""
        return [entry for entry in self.entries() if isinstance(entry, StoredVoice)]

    def entries(self) -> list[StoredVoice | TornVoice]:
        """Every entry, by name; those that are torn are logged once."""
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return []
        found = (
            self._entry(name.removesuffix(_SUFFIX))
            for name in names
            if name.endswith(_SUFFIX) and not name.startswith(".")
        )
        return [entry for entry in found if entry is not None]

    def find(self, name: str) -> StoredVoice | None:
        """A voice by its name; None if there is none, or if it is torn."""
        entry = self._entry(name) if is_name(name) else None
        return entry if isinstance(entry, StoredVoice) else None

    def get(self, name: str) -> StoredVoice:
        """A voice by its name.

        Raises:
            VoiceError: There is none of that name, or it is torn.
        """
        check_name(name)
        entry = self._entry(name)
        if entry is None:
            known = ", ".join(voice.name for voice in self.voices()) or "none"
            raise VoiceError(f"There is no stored voice {name!r}.", remedy=f"There are: {known}.")
        if isinstance(entry, TornVoice):
            raise VoiceError(
                f"The voice {name!r} cannot be used: {entry.reason}.",
                remedy=f"Add it again, or remove it: boardvoice voices remove {name}.",
            )
        return entry

    def add(
        self,
        name: str,
        source: AudioSource,
        encoder: Encoder,
        *,
        transcript: str = "",
        cancel: CancelToken | None = None,
    ) -> tuple[StoredVoice, tuple[str, ...]]:
        """Add a voice. When this returns, it is there, and stays there through a power loss.

        Args:
            name: Its name.
            source: A recording; it is not needed any more afterwards.
            encoder: Encodes it.
            transcript: What is said in it.
            cancel: Ends it before anything is kept.

        Returns:
            The voice, and what its owner should know.

        Raises:
            AudioError: A recording that cannot be used.
            VoiceError: A wrong name, or one that is taken.
            TextError: A transcript that cannot be used.
            OutputError: The state folder cannot be written.
            CancelledError: `cancel` was set.
        """
        check_name(name)
        transcript = _checked_transcript(transcript)
        self.refuse_taken(name)
        clip = read_clip(source)
        encoded = encoder.encode(clip.audio(), prompt=bool(transcript), cancel=cancel)
        file = self.folder / f"{name}{_SUFFIX}"
        voice = StoredVoice(
            name=name,
            file=file,
            clip=hashlib.sha256(clip.flac).hexdigest(),
            seconds=round(clip.seconds, 3),
            sample_rate=clip.sample_rate,
            added=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            transcript=transcript,
        )
        details = {
            "format": _FORMAT, "clip": voice.clip, "seconds": voice.seconds,
            "sample_rate": voice.sample_rate, "added": voice.added, "transcript": transcript,
        }  # fmt: skip
        with self._writing(), self._alone():
            self.refuse_taken(name)
            voice.keep_encoded(encoder.encoder, encoded)
            write_sealed(file, details, clip.flac)
        return voice, clip.notes

    def refuse_taken(self, name: str) -> None:
        """Refuse a name before the work.

        Raises:
            VoiceError: There is a whole voice of that name.
        """
        # What is torn may be replaced.
        if isinstance(self._entry(name), StoredVoice):
            raise VoiceError(
                f"There is a voice {name!r} already.",
                remedy="Remove it first, or give another name.",
            )

    def remove(self, name: str) -> bool:
        """Remove a voice, torn or whole; returns whether it was there.

        Raises:
            VoiceError: A wrong name.
            OutputError: It cannot be removed.
        """
        check_name(name)
        if not self.folder.is_dir():
            return False
        with self._writing(), self._alone():
            found = remove_file(self.folder / f"{name}{_SUFFIX}")
            self._drop_latents()
        return found

    def tidy(self) -> None:
        """Remove what killed processes left behind; where that cannot be done, it stays."""
        if self.folder.is_dir():
            with contextlib.suppress(OSError), self._alone():
                self._drop_latents()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process writes at a time; what others left unfinished goes first."""
        make_folder(self.folder)
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            locked = True
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                # The file system has no locks.
                locked = False
            for folder in (self.folder, self.folder / LATENTS):
                remove_leftovers(folder, alone=locked)
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self.folder} cannot be written: {error.strerror or error}.",
                remedy="Make the state folder writable, or name another with BOARDVOICE_STATE.",
            ) from error

    def _drop_latents(self) -> None:
        """Remove latents that belong to no voice, and the oldest where there are many of one."""
        folder = self.folder / LATENTS
        wanted = {voice.latents_prefix for voice in self.voices()}
        kept: dict[str, int] = {}
        files = [file for file in folder.glob("*-*") if not file.name.startswith(".")]
        for file in sorted(files, key=lambda file: -file.stat().st_mtime_ns):
            prefix = file.name.partition("-")[0]
            kept[prefix] = kept.get(prefix, 0) + 1
            if prefix not in wanted or kept[prefix] > _MOST_ENCODERS:
                file.unlink(missing_ok=True)

    def _entry(self, name: str) -> StoredVoice | TornVoice | None:
        file = self.folder / f"{name}{_SUFFIX}"
        try:
            status = file.stat()
        except OSError:
            self._read.pop(file, None)
            return None
        state = (status.st_size, status.st_mtime_ns, status.st_ino)
        known = self._read.get(file)
        if known is None or known[0] != state:
            entry = _read_entry(name, file)
            if entry is None:
                return None
            self._read[file] = known = (state, entry)
        entry = known[1]
        if isinstance(entry, TornVoice) and (file, entry.reason) not in self._told:
            self._told.add((file, entry.reason))
            _LOG.warning("The voice %s is passed over: %s (%s).", name, entry.reason, file)
        return entry


def _read_entry(name: str, file: Path) -> StoredVoice | TornVoice | None:
    if not is_name(name):
        return TornVoice(name, file, "its name is none that a voice may have")
    try:
        details, flac = read_sealed(file)
        if details.pop("format", None) != _FORMAT:
            return TornVoice(name, file, "another version of boardvoice wrote it")
        if hashlib.sha256(flac).hexdigest() != details["clip"]:
            return TornVoice(name, file, "its clip does not match its SHA-256")
        return StoredVoice(name=name, file=file, **details)
    except FileNotFoundError:
        return None
    except (TornFileError, KeyError, TypeError, ValueError) as error:
        return TornVoice(name, file, str(error) or "its details are wrong")


def _checked_transcript(text: str) -> str:
    if not text.strip():
        return ""
    try:
        return normalize_text(text, max_chars=_MAX_TRANSCRIPT)
    except TextError as error:
        raise TextError(f"Transcript: {error.message}", remedy=error.remedy) from error
