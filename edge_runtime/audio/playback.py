"""Audio to the loudspeaker while it is being made."""

from __future__ import annotations

import importlib
import threading
from collections import deque
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from edge_runtime.audio.load import Samples
from edge_runtime.errors import DependencyError, OutputError

# How often to look whether the device is still there while waiting for it, in seconds.
_WATCH = 0.5


class Player:
    """Plays mono chunks in order through the sound device, as a context manager.

    Sound starts once ``prebuffer`` seconds are there, or at the end. If chunks come too slowly
    the device gets silence meanwhile; ``underruns`` counts these gaps. One thread writes.

    Args:
        sample_rate: In Hz.
        device: Number or part of the name of an output device; None for the default.
        prebuffer: Seconds to gather before sound starts.
        ahead: Seconds to hold at most; `write` waits beyond.

    Raises:
        DependencyError: sounddevice or the PortAudio library is not installed.
        OutputError: No such device, or it does not take this rate.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        device: int | str | None = None,
        prebuffer: float = 0.5,
        ahead: float = 30.0,
    ) -> None:
        self.underruns = 0
        self._sound = _load_sounddevice()
        self._rate = sample_rate
        self._prebuffer = round(prebuffer * sample_rate)
        self._ahead = max(round(ahead * sample_rate), self._prebuffer + 1)
        self._chunks: deque[Samples] = deque()
        self._held = 0
        self._dry = False
        self._ending = False
        self._started = False
        self._closed = False
        self._changed = threading.Condition()
        self._finished = threading.Event()
        try:
            self._stream = self._sound.OutputStream(
                samplerate=sample_rate,
                channels=1,
                dtype="float32",
                device=device,
                callback=self._fill,
                finished_callback=self._finished.set,
            )
        except (self._sound.PortAudioError, ValueError) as error:
            raise OutputError(
                f"No sound device takes {sample_rate} Hz mono: {error}.",
                remedy="Connect or name another device, or write to a file.",
            ) from error

    def write(self, chunk: Samples) -> None:
        """Queue ``[samples]`` float32; waits only while more than ``ahead`` seconds are held.

        Raises:
            OutputError: The player is closed, the chunk is not ``[samples]`` of finite floats,
                or the device stopped.
        """
        samples = np.array(chunk, dtype=np.float32)  # a copy: the caller may use its buffer again
        if samples.ndim != 1 or not np.isfinite(samples).all():
            raise OutputError("Audio to play must be [samples] of finite floats.")
        if self._closed:
            raise OutputError("The player is closed.")
        np.clip(samples, -1.0, 1.0, out=samples)
        with self._changed:
            while self._started and self._held > self._ahead:
                self._check_device()
                self._changed.wait(_WATCH)
            if len(samples):
                # Silence only counts as a gap once more sound comes after it.
                self.underruns += self._dry
                self._dry = False
                self._chunks.append(samples)
                self._held += len(samples)
            ready = self._held >= self._prebuffer
        if ready:
            self._start()

    def close(self) -> None:
        """Play what is queued, then release the device. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            with self._changed:
                self._ending = True
                pending = self._held > 0
            if pending:
                self._start()
            while self._started and not self._finished.wait(_WATCH):
                if not self._stream.active:
                    break
        finally:
            self._stream.close()

    def abort(self) -> None:
        """Stop at once and release the device."""
        if not self._closed:
            self._closed = True
            self._stream.abort()
            self._stream.close()

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _start(self) -> None:
        if self._started:
            return
        try:
            self._stream.start()
        except self._sound.PortAudioError as error:
            raise OutputError(f"The sound device did not start: {error}.") from error
        self._started = True

    def _check_device(self) -> None:
        if self._finished.is_set() or not self._stream.active:
            raise OutputError("The sound device stopped.")

    def _fill(self, out: Any, frames: int, _time: Any, _status: Any) -> None:
        """Give the device its next ``[frames, 1]``; runs on the device's thread."""
        with self._changed:
            done = 0
            while done < frames and self._chunks:
                chunk = self._chunks[0]
                taken = min(len(chunk), frames - done)
                out[done : done + taken, 0] = chunk[:taken]
                done += taken
                if taken == len(chunk):
                    self._chunks.popleft()
                else:
                    self._chunks[0] = chunk[taken:]
            out[done:, 0] = 0.0
            self._held -= done
            self._changed.notify_all()
            exhausted = done < frames
            self._dry = exhausted
        if exhausted and self._ending:
            raise self._sound.CallbackStop


def _load_sounddevice() -> ModuleType:
    try:
        return importlib.import_module("sounddevice")
    except ImportError as error:
        raise DependencyError(
            "Playing needs the package sounddevice.", remedy="pip install sounddevice"
        ) from error
    except OSError as error:
        raise DependencyError(
            f"Playing needs the PortAudio library: {error}.",
            remedy="sudo apt install libportaudio2",
        ) from error
