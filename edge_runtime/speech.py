"""What goes into a request for speech and what comes out of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge_runtime.audio.load import AudioSource
from edge_runtime.errors import UsageError
from edge_runtime.npu.record import NpuRecord
from edge_runtime.presets import PRESETS
from edge_runtime.runtime_choice import RuntimeChoice
from edge_runtime.voices.stored_voice import StoredVoice

FloatArray = npt.NDArray[np.float32]

StopReason = Literal["stop", "cap", "max_len", "kv_capacity", "cancelled"]


@dataclass(frozen=True)
class SpeechOptions:
    """How to speak. Defaults are those of the official package.

    Attributes:
        seed: Seed of all noise; None draws one, which the metrics report.
        preset: ``quality``, ``balanced`` or ``fast``; ``quality`` is the official solver.
        steps: Euler steps of the flow solver, 2 to 100; None takes the preset's.
        cfg: Classifier-free guidance, 0.1 to 10; at 1 the unguided half is not computed.
        min_len: The stop head is ignored for this many patches after the first.
        max_len: Most patches per text chunk.
        retry_badcase: Speak a chunk again with seed + 1 when it runs too long for its text.
            Streams never retry: what was sent cannot be taken back.
        retry_times: Most attempts per chunk.
        retry_ratio: Patches per text token that count as too long; also the cap of every run,
            ``retry_ratio * tokens + 10``.
        chunk_rows: KV rows that one chunk of a long text may need, prefix and longest reply
            together; None takes the profile's.
        trim_silence: Trim silence off reference and prompt audio.
    """

    seed: int | None = None
    preset: str = "quality"
    steps: int | None = None
    cfg: float = 2.0
    min_len: int = 2
    max_len: int = 4096
    retry_badcase: bool = True
    retry_times: int = 3
    retry_ratio: float = 6.0
    chunk_rows: int | None = None
    trim_silence: bool = False

    def __post_init__(self) -> None:
        checks = (
            ("seed", self.seed is None or _whole(self.seed, 0, 2**63 - 1), "0 to 2^63 - 1"),
            (
                "preset",
                isinstance(self.preset, str) and self.preset in PRESETS,
                f"one of {', '.join(PRESETS)}",
            ),
            (
                "steps",
                self.steps is None or _whole(self.steps, 2, 100),
                "a whole number from 2 to 100",
            ),
            ("cfg", _real(self.cfg) and 0.1 <= self.cfg <= 10, "0.1 to 10"),
            ("min_len", _whole(self.min_len, 0), "a whole number, 0 or more"),
            ("max_len", _whole(self.max_len, 1), "a whole number, 1 or more"),
            ("retry_times", _whole(self.retry_times, 1, 20), "a whole number from 1 to 20"),
            ("retry_ratio", _real(self.retry_ratio) and self.retry_ratio > 0, "above 0"),
            ("retry_badcase", isinstance(self.retry_badcase, bool), "True or False"),
            ("trim_silence", isinstance(self.trim_silence, bool), "True or False"),
            (
                "chunk_rows",
                self.chunk_rows is None or _whole(self.chunk_rows, 16),
                "a whole number, 16 or more",
            ),
        )
        for name, good, allowed in checks:
            if not good:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}.", remedy=f"It must be {allowed}."
                )

    @property
    def euler_steps(self) -> int:
        """Steps as given, else the preset's."""
        return PRESETS[self.preset].steps if self.steps is None else int(self.steps)

    @property
    def even(self) -> bool:
        """Whether the preset's steps are of equal width."""
        return PRESETS[self.preset].even


def _whole(value: object, low: int, high: float = math.inf) -> bool:
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    return low <= int(value) <= high


def _real(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


@dataclass(frozen=True)
class SpeechRequest:
    """What to say and with whose voice.

    Attributes:
        text: Normalised text; may begin with a voice design in parentheses.
        reference: Audio of the voice to speak with, or a stored voice.
        prompt_audio: Speech to go on from; needs `prompt_text`.
        prompt_text: What is said in `prompt_audio`.
    """

    text: str
    reference: AudioSource | StoredVoice | None = None
    prompt_audio: AudioSource | None = None
    prompt_text: str | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        chunk: Index of the text chunk being spoken.
        chunks: Chunks of the text.
        patches: Patches of that chunk so far.
        limit: Most patches that chunk may take.
    """

    chunk: int
    chunks: int
    patches: int
    limit: int

    @property
    def share(self) -> float:
        """How much of the chunk is spoken, against the longest it may become, 0 to 1."""
        return min(self.patches / self.limit, 1.0)


@dataclass(frozen=True)
class ChunkReport:
    """One chunk of the text, as it was spoken.

    Attributes:
        text: The chunk.
        tokens: Its tokens.
        prefix_rows: KV rows before the first patch.
        patches: Patches it took.
        stop_reason: Why it ended.
        attempts: Times it was spoken.
        seed: Seed of the attempt that was kept.
    """

    text: str
    tokens: int
    prefix_rows: int
    patches: int
    stop_reason: StopReason
    attempts: int
    seed: int


@dataclass
class SpeechMetrics:
    """Figures of one run; filled while it runs. Times are wall milliseconds.

    Attributes:
        seed: Seed of the run.
        sample_rate: Samples per second of the audio.
        patch_seconds: Audio per patch.
        preset: Preset of the run.
        steps: Euler steps of the flow solver.
        cfg: Guidance.
        overlapped: Whether audio was decoded while the next patch was computed; the times of
            ``vae_decode`` then lie beside the others.
        runtime: How graphs were run.
        providers: What ran them, by graph.
        npu: What became of the flow estimator on the NPU, since it was loaded; None where it was
            not meant to be there.
        ms: Time by component: ``text``, ``encode``, ``prefill``, ``flow``, ``patch_encoder``,
            ``lm_step``, ``vae_decode``.
        spans: Every single time by component, when it is a dictionary; they are not kept otherwise.
        planned_chunks: Chunks that the text was cut into.
        chunks: Reports of those that were begun.
        kv_bytes: Largest KV cache held.
        kv_clipped: Share of an int8 cache's values at the end of its range, in the worst chunk.
        first_audio_ms: From the call to the first samples.
        samples: Samples of audio returned.
        decoded_patches: Patches computed, including those of attempts that were not kept.
        disk_read_bytes: Read from disk for this process while it ran; 0 where the kernel does not
            tell.
        warnings: What the user should know.
    """

    seed: int
    sample_rate: int
    patch_seconds: float
    preset: str = "quality"
    steps: int = PRESETS["quality"].steps
    cfg: float = 2.0
    overlapped: bool = False
    runtime: RuntimeChoice = field(default_factory=RuntimeChoice)
    providers: dict[str, str] = field(default_factory=dict)
    npu: NpuRecord | None = None
    ms: dict[str, float] = field(default_factory=dict)
    spans: dict[str, list[float]] | None = None
    planned_chunks: int = 0
    chunks: list[ChunkReport] = field(default_factory=list)
    kv_bytes: int = 0
    kv_clipped: float = 0.0
    first_audio_ms: float = 0.0
    samples: int = 0
    decoded_patches: int = 0
    peak_rss_anon_bytes: int = 0
    disk_read_bytes: int = 0
    warnings: list[str] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def mark_first_audio(self) -> None:
        """Note the time of the first samples; later calls change nothing."""
        if not self.first_audio_ms:
            self.first_audio_ms = (time.perf_counter() - self.started) * 1000

    @contextmanager
    def timed(self, component: str) -> Iterator[None]:
        """Add the block's time to a component."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - start) * 1000
            self.ms[component] = self.ms.get(component, 0.0) + spent
            if self.spans is not None:
                self.spans.setdefault(component, []).append(spent)

    @property
    def patches(self) -> int:
        """Patches of audio returned."""
        return sum(chunk.patches for chunk in self.chunks)

    @property
    def stop_reason(self) -> StopReason:
        """``stop`` when the model ended every chunk itself, else the first other reason.

        A run that ended between two chunks was cancelled, however well the first one ended.
        """
        if len(self.chunks) < max(self.planned_chunks, 1):
            return "cancelled"
        others = (chunk.stop_reason for chunk in self.chunks if chunk.stop_reason != "stop")
        return next(others, "stop")

    @property
    def audio_s(self) -> float:
        """Seconds of audio returned."""
        return self.samples / self.sample_rate

    def as_dict(self) -> dict[str, Any]:
        """The names that every machine-readable output uses."""
        # Copied, since a thread that computes ahead may be adding to it.
        ms = dict(self.ms)
        loop = ["flow", "patch_encoder", "lm_step"] + ["vae_decode"] * (not self.overlapped)
        patches = max(self.decoded_patches, 1)
        return {
            "patches": self.patches,
            "stop_reason": self.stop_reason,
            "prefix_rows": max((chunk.prefix_rows for chunk in self.chunks), default=0),
            "kv_bytes": self.kv_bytes,
            "kv_clipped": round(self.kv_clipped, 6),
            "ms": {name: round(value, 3) for name, value in ms.items()},
            "preset": self.preset,
            "steps": self.steps,
            "cfg": self.cfg,
            "overlapped": self.overlapped,
            "providers": dict(self.providers),
            "npu": None if self.npu is None else self.npu.as_dict(),
            "first_audio_ms": round(self.first_audio_ms, 3),
            "ms_per_patch": round(sum(ms.get(name, 0.0) for name in loop) / patches, 3),
            "cpu_s_per_patch": round(self.cpu_s / patches, 4),
            "rtf": round(self.wall_s / self.audio_s, 4) if self.samples else None,
            "peak_rss_anon_bytes": self.peak_rss_anon_bytes,
            "disk_read_bytes": self.disk_read_bytes,
            "audio_s": round(self.audio_s, 4),
            "wall_s": round(self.wall_s, 4),
            "sample_rate": self.sample_rate,
            "seed": self.seed,
            "attempts": sum(chunk.attempts for chunk in self.chunks),
            "chunks": [
                {
                    "text": chunk.text,
                    "tokens": chunk.tokens,
                    "prefix_rows": chunk.prefix_rows,
                    "patches": chunk.patches,
                    "stop_reason": chunk.stop_reason,
                    "attempts": chunk.attempts,
                    "seed": chunk.seed,
                }
                for chunk in self.chunks
            ],
            "runtime": self.runtime.as_dict(),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Speech:
    """A finished utterance.

    Attributes:
        audio: Mono samples f32 [n] within ±1.
        sample_rate: Samples per second.
        metrics: Figures of the run.
    """

    audio: FloatArray
    sample_rate: int
    metrics: SpeechMetrics

    @property
    def stop_reason(self) -> StopReason:
        """Why it ended."""
        return self.metrics.stop_reason
