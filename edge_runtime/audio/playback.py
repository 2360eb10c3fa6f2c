"""Audio to the loudspeaker while it is being made."""

from __future__ import annotations

import importlib
import logging
import threading
from collections import deque
from types import ModuleType, TracebackType
from typing import Any

import numpy as np
import soxr

from edge_runtime.audio.load import Samples
from edge_runtime.audio.pace import Pace
from edge_runtime.errors import DependencyError, OutputError

# How often to look whether the device is still there while waiting for it, in seconds.
_WATCH = 0.5
_LOG = logging.getLogger("boardvoice")


class Player:
    """Plays mono chunks in order through the sound device, as a context manager.

    Sound starts once ``prebuffer`` seconds are there, or at the end. If chunks come too slowly
    the device gets silence meanwhile; ``underruns`` counts these gaps. One thread writes.
    A device that does not take the rate gets its own rate, resampled by soxr HQ.

    Args:
        sample_rate: In Hz.
        device: Number or part of the name of an output device; None for the default.
        prebuffer: Seconds to gather before sound starts.
        ahead: Seconds to hold at most; `write` waits beyond.
        volume: Factor for every sample, 0 to 1.
        pace: Measures how fast chunks come; its lead is gathered beyond ``prebuffer``.
        fade: Seconds in which `abort` fades out what is sounding.

    Attributes:
        underruns: Gaps heard.
        notes: What was done otherwise than asked, and why.

    Raises:
        DependencyError: sounddevice or the PortAudio library is not installed.
        OutputError: No such device, or it takes no rate that can be had.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        device: int | str | None = None,
        prebuffer: float = 0.5,
        ahead: float = 30.0,
        volume: float = 1.0,
        pace: Pace | None = None,
        fade: float = 0.03,
    ) -> None:
        self.underruns = 0
        self.notes: list[str] = []
        self._sound = _load_sounddevice()
        self._rate = sample_rate
        self._pace = pace
        self._slow_said = False
        self._volume = np.float32(volume)
        self._fade_left: int | None = None
        self._resampler: Any = None
        self._chunks: deque[Samples] = deque()
        self._held = 0
        self._dry = False
        self._ending = False
        self._started = False
        self._closed = False
        self._changed = threading.Condition()
        self._finished = threading.Event()
        self._stream = self._open(device)
        self._prebuffer = round(prebuffer * self._rate)
        self._ahead = max(round(ahead * self._rate), self._prebuffer + 1)
        self._fade = max(round(fade * self._rate), 1)

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
        if self._pace is not None and not self._started:
            self._pace.note(len(samples) / self._written_rate)
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples)
        self._queue(samples)
        if self._enough():
            self._start()

    def _queue(self, samples: Samples) -> None:
        samples *= self._volume
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

    def _enough(self) -> bool:
        """Whether sound may start: what is held outlasts what is still to be made."""
        if self._started or self._held < self._prebuffer:
            return self._started
        if self._pace is None:
            return True
        lead, rtf = self._pace.lead, self._pace.rtf
        if lead is None or rtf is None:
            return False
        if rtf > 1.0 and not self._slow_said:
            self._slow_said = True
            self._say(
                f"Speech is made {rtf:.2f} times slower than it is played; to keep it whole, "
                f"sound starts when about {self._prebuffer / self._rate + lead:.1f} s are there."
            )
        gathered = round(lead * self._rate)
        if self._held < self._prebuffer + gathered:
            return False
        # What was gathered on purpose must not stop the one who makes the rest.
        self._ahead += gathered
        return True

    def close(self) -> None:
        """Play what is queued, then release the device. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._resampler is not None:
                self._queue(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
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
        """Fade out, stop and release the device; a device that hangs is not waited for."""
        if self._closed:
            return
        self._closed = True
        try:
            with self._changed:
                sounding = self._started and self._held > 0 and self._stream.active
                if sounding:
                    self._fade_left = self._fade
            if sounding:
                self._finished.wait(_WATCH)
        finally:
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

    def _open(self, device: int | str | None) -> Any:
        """The device at the rate that was asked for, else at its own."""
        self._written_rate = self._rate
        try:
            return self._output(self._rate, device)
        except ValueError as error:
            raise OutputError(
                f"There is no such sound device: {error}. Devices: {self._devices()}.",
                remedy="Name one of them by its number or a part of its name.",
            ) from error
        except self._sound.PortAudioError as error:
            refused = OutputError(
                f"No sound device takes {self._rate} Hz mono: {error}. "
                f"Devices: {self._devices()}.",
                remedy="Connect or name another device, or write to a file.",
            )
            try:
                details = self._sound.query_devices(device, "output")
                own = round(float(details["default_samplerate"]))
                if own in (0, self._rate):
                    raise refused from error
                stream = self._output(own, device)
            except (self._sound.PortAudioError, ValueError):
                raise refused from error
            self._say(f"The sound device takes {own} Hz, not {self._rate}: resampled ({error}).")
            self._rate = own
            self._resampler = soxr.ResampleStream(
                self._written_rate, own, 1, dtype="float32", quality="HQ"
            )
            return stream

    def _output(self, rate: int, device: int | str | None) -> Any:
        return self._sound.OutputStream(
            samplerate=rate,
            channels=1,
            dtype="float32",
            device=device,
            callback=self._fill,
            finished_callback=self._finished.set,
        )

    def _devices(self) -> str:
        try:
            found = list(self._sound.query_devices())
        except self._sound.PortAudioError as error:
            return f"not known ({error})"
        names = [
            f"{number} {details['name']!r}"
            for number, details in enumerate(found)
            if details["max_output_channels"] > 0
        ]
        return ", ".join(names) or "none"

    def _say(self, note: str) -> None:
        self.notes.append(note)
        _LOG.warning("%s", note)

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
            faded = self._fade_out(out, frames)
            self._held -= done
            self._changed.notify_all()
            exhausted = done < frames
            self._dry = exhausted
        if faded or (exhausted and self._ending):
            raise self._sound.CallbackStop

    def _fade_out(self, out: Any, frames: int) -> bool:
        """Let ``[frames, 1]`` become quieter if that was asked for; whether it is over."""
        if self._fade_left is None:
            return False
        left = np.arange(self._fade_left, self._fade_left - frames, -1, dtype=np.float32)
        out[:, 0] *= np.clip(left / self._fade, 0.0, 1.0)
        self._fade_left = max(self._fade_left - frames, 0)
        return self._fade_left == 0


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
