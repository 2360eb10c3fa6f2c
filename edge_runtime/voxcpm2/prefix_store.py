"""Voices that were used before: their encoded audio and the KV rows of their reference."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edge_runtime.kv_cache import KVSnapshot

FloatArray = npt.NDArray[np.float32]

# Encoded patches are kept of so many clips; a minute of audio is 400 kB.
_CLIPS = 32


def fingerprint(array: FloatArray, *extra: str) -> str:
    """Content hash of an array."""
    digest = hashlib.sha256(np.ascontiguousarray(array).data)
    digest.update("\n".join((str(array.shape), *extra)).encode())
    return digest.hexdigest()


@dataclass
class PrefixStore:
    """Keeps what the same voice needs again, most recently used last.

    KV rows go before clips: a clip's patches take a fiftieth and save the encoder.

    Attributes:
        max_bytes: Most bytes kept, KV rows and encoded audio together.
    """

    max_bytes: int
    _rows: OrderedDict[str, KVSnapshot] = field(default_factory=OrderedDict)
    _clips: OrderedDict[str, FloatArray] = field(default_factory=OrderedDict)

    @property
    def nbytes(self) -> int:
        """Bytes of KV rows kept now."""
        # A copy: a thread that samples memory reads it while a request keeps a voice.
        return sum(snapshot.nbytes for snapshot in tuple(self._rows.values()))

    @property
    def clip_bytes(self) -> int:
        """Bytes of encoded audio kept now."""
        return sum(patches.nbytes for patches in tuple(self._clips.values()))

    def rows(self, key: str) -> KVSnapshot | None:
        """KV rows of a reference, or None."""
        snapshot = self._rows.get(key)
        if snapshot is not None:
            self._rows.move_to_end(key)
        return snapshot

    def has_room(self, count: int) -> bool:
        """Whether so many bytes of KV rows may be kept at all."""
        return count + self.clip_bytes <= self.max_bytes

    def keep_rows(self, key: str, snapshot: KVSnapshot) -> None:
        """Keep a reference's KV rows; the least recently used others go when it gets too much."""
        self._rows[key] = snapshot
        self._fit()

    def clip(self, key: str) -> FloatArray | None:
        """Encoded patches of a clip, or None."""
        patches = self._clips.get(key)
        if patches is not None:
            self._clips.move_to_end(key)
        return patches

    def keep_clip(self, key: str, patches: FloatArray) -> None:
        """Keep a clip's encoded patches, if they may be kept at all."""
        if patches.nbytes > self.max_bytes:
            return
        self._clips[key] = patches
        if len(self._clips) > _CLIPS:
            self._clips.popitem(last=False)
        self._fit()

    def clear_rows(self) -> bool:
        """Drop the KV rows; returns whether there were any."""
        held = bool(self._rows)
        self._rows.clear()
        return held

    def clear_clips(self) -> bool:
        """Drop the encoded audio; returns whether there was any."""
        held = bool(self._clips)
        self._clips.clear()
        return held

    def _fit(self) -> None:
        while self.nbytes + self.clip_bytes > self.max_bytes:
            (self._rows or self._clips).popitem(last=False)
