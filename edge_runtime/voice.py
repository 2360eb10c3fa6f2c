"""The Python API: load a bundle, say a text or stream it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from device_profiles.flow_placement import FlowPlace
from device_profiles.schema import Profile
from edge_runtime.affinity import on_cores, pinned
from edge_runtime.audio.load import AudioSource
from edge_runtime.backends.protocol import Backend
from edge_runtime.bundle import Bundle, Manifest
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import CancelledError, TextError, UsageError
from edge_runtime.loader import LoadOptions, family_module, open_device
from edge_runtime.memory.disk_reads import disk_read_bytes, reread_warning
from edge_runtime.memory.watch import MemoryWatch
from edge_runtime.noise import Noise, SeededNoise
from edge_runtime.prepare.prepared_bundle import OnPrepare
from edge_runtime.resources import NOT_PREPARED, Resources
from edge_runtime.run_turn import RunTurn
from edge_runtime.speech import Progress, Speech, SpeechMetrics, SpeechOptions, SpeechRequest
from edge_runtime.text.normalize import normalize_text
from edge_runtime.voices.stored_voice import EncodedVoice, StoredVoice

FloatArray = npt.NDArray[np.float32]
MakeNoise = Callable[[int, int], Noise]
OnProgress = Callable[[Progress], None]


class SpeechModel(Protocol):
    """What a family's ``load(bundle, resources)`` returns.

    Attributes:
        sample_rate: Samples per second.
        patch_seconds: Audio per step in seconds.
        encoder: Fingerprint of the audio encoder: what it makes is good for others like it.
    """

    sample_rate: int
    patch_seconds: float
    encoder: str

    def kv_bytes(self) -> int:
        """Bytes of KV held now, whoever holds them."""
        ...

    def kv_row_bytes(self) -> int:
        """Bytes of one KV row."""
        ...

    def encode(
        self, audio: tuple[FloatArray, int], *, prompt: bool, cancel: CancelToken
    ) -> EncodedVoice:
        """Encode the clip of a voice, samples and rate."""
        ...

    def speak(
        self,
        request: SpeechRequest,
        options: SpeechOptions,
        metrics: SpeechMetrics,
        cancel: CancelToken,
        *,
        retry: bool,
        make_noise: MakeNoise,
        progress: OnProgress | None,
    ) -> Iterator[FloatArray]:
        """Yield audio f32 [n] piece by piece."""
        ...


class SpeechStream:
    """Audio while it is being made. Iterate it, or close it (or use ``with``) to end early.

    Attributes:
        sample_rate: Samples per second.
        metrics: Figures, complete when the stream has ended.
    """

    def __init__(self, chunks: Iterator[FloatArray], metrics: SpeechMetrics) -> None:
        self._chunks = chunks
        self.metrics = metrics
        self.sample_rate = metrics.sample_rate

    def __iter__(self) -> Iterator[FloatArray]:
        return self

    def __next__(self) -> FloatArray:
        return next(self._chunks)

    def close(self) -> None:
        """End the run now; nothing more is computed."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Voice:
    """A loaded voice. Get one from `Voice.load`.

    One run at a time: a second thread waits for the first one's run to end.
    """

    def __init__(self, model: SpeechModel, manifest: Manifest, resources: Resources) -> None:
        self._model = model
        self._turn = RunTurn()
        self.manifest = manifest
        self.profile = resources.profile
        self.resources = resources

    @staticmethod
    def load(
        bundle: str | Path,
        *,
        profile: str | Profile | None = None,
        threads: int | None = None,
        verify: bool = True,
        prepare: str | None = None,
        memory_limit: int | None = None,
        memory_soft: int | None = None,
        backend: Backend | None = None,
        on_prepare: OnPrepare | None = None,
        tuned: bool = True,
        flow: FlowPlace | None = None,
    ) -> Voice:
        """Load a bundle.

        Args:
            bundle: Folder that ``boardvoice export`` wrote.
            profile: Device profile, its name or a file; by default the one that fits this board.
            threads: Overrides the profile's thread count.
            verify: Check the SHA-256 of every file that is read from the bundle.
            prepare: ``auto`` or ``never``; by default the profile's word. A bundle is prepared
                once per device, see `edge_runtime.prepare`.
            memory_limit: Most bytes of anonymous memory that this process may hold.
            memory_soft: Bytes above which what is not needed is given back.
            backend: Replaces ONNX Runtime's CPU provider.
            on_prepare: Told how far a preparation is: graph, graphs done, graphs in all.
            tuned: Run as `boardvoice tune` found to be best on this device, if it was tuned.
            flow: Where the flow estimator runs (``cpu``, ``rknn``, ``rknn-sim``), whatever the
                profile says.

        Raises:
            BundleError: Missing, torn or altered bundle, or an unknown family.
            ProfileError: Unknown or wrong profile.
            BackendError: A graph cannot be loaded.
            MemoryBudgetError: There is no room for it.
        """
        options = LoadOptions(
            profile=profile,
            threads=threads,
            verify=verify,
            prepare=prepare,
            memory_limit=memory_limit,
            memory_soft=memory_soft,
            backend=backend,
            on_prepare=on_prepare,
            tuned=tuned,
            flow=flow,
        )
        return Voice.load_with(bundle, options)

    @staticmethod
    def load_with(bundle: str | Path, options: LoadOptions) -> Voice:
        """Load a bundle; arguments and errors are those of `load`."""
        return Voice.of(*open_device(bundle, options))

    @staticmethod
    def of(bundle: Bundle, resources: Resources) -> Voice:
        """Load the graphs of an opened bundle; their threads stay on the cores that were chosen."""
        with on_cores(resources.runtime.cores):
            model = family_module(bundle).load(bundle, resources)
        return Voice(model, bundle.manifest, resources)

    @property
    def sample_rate(self) -> int:
        """Samples per second of what is spoken."""
        return self._model.sample_rate

    def kv_bytes(self) -> int:
        """Bytes of KV held now: by a running request, pooled, and kept for voices."""
        return self._model.kv_bytes()

    def kv_row_bytes(self) -> int:
        """Bytes of one KV row."""
        return self._model.kv_row_bytes()

    @property
    def encoder(self) -> str:
        """Fingerprint of the audio encoder; stored voices are kept encoded by it."""
        return self._model.encoder

    def encode(
        self,
        audio: tuple[FloatArray, int],
        *,
        prompt: bool = False,
        cancel: CancelToken | None = None,
    ) -> EncodedVoice:
        """Encode a clip for the store; waits for its turn like a run.

        Args:
            audio: Mono samples f32 [n] and their rate in Hz.
            prompt: Encode it as a prompt too, for a clip whose transcript is known.
            cancel: Ends it between two chunks.

        Raises:
            AudioError: The clip cannot be used.
            CancelledError: `cancel` was set.
        """
        token, run = cancel or CancelToken(), object()
        if not self._turn.take(run, token):
            raise CancelledError("Cancelled while another run was under way.")
        try:
            with on_cores(self.resources.runtime.cores):
                return self._model.encode(audio, prompt=prompt, cancel=token)
        finally:
            self._turn.give(run)

    def say(
        self,
        text: str,
        *,
        reference: AudioSource | StoredVoice | None = None,
        prompt_audio: AudioSource | None = None,
        prompt_text: str | None = None,
        options: SpeechOptions | None = None,
        cancel: CancelToken | None = None,
        progress: OnProgress | None = None,
        make_noise: MakeNoise = SeededNoise,
        **overrides: object,
    ) -> Speech:
        """Say a text and return the whole of it.

        Args:
            text: What to say. A voice design may lead it, in parentheses.
            reference: Audio of the voice to speak with, or a voice of the store.
            prompt_audio: Speech to go on from; needs ``prompt_text``.
            prompt_text: What is said in ``prompt_audio``.
            options: How to speak; single fields can be given by name instead (``seed=7``).
            cancel: Ends the run within one patch; what was spoken so far is returned.
            progress: Called after every patch.
            make_noise: Makes a chunk's noise from the seed and the chunk's index.

        Raises:
            TextError: Text that cannot be spoken.
            AudioError: Reference or prompt audio that cannot be used.
            CapacityError: Audio that leaves no room for text.
            UsageError: An option out of range, or prompt audio without its text.
            CancelledError: Cancelled before any audio was there to return.
        """
        stream = self._start(
            text, reference, prompt_audio, prompt_text, _options(options, overrides), cancel,
            progress, make_noise, retry=True,
        )  # fmt: skip
        pieces = list(stream)
        if not pieces:
            raise CancelledError("Cancelled before there was any audio.")
        return Speech(np.concatenate(pieces), self.sample_rate, stream.metrics)

    def stream(
        self,
        text: str,
        *,
        reference: AudioSource | StoredVoice | None = None,
        prompt_audio: AudioSource | None = None,
        prompt_text: str | None = None,
        options: SpeechOptions | None = None,
        cancel: CancelToken | None = None,
        progress: OnProgress | None = None,
        make_noise: MakeNoise = SeededNoise,
        retry: bool = False,
        **overrides: object,
    ) -> SpeechStream:
        """Say a text and hand out each patch as soon as it is there.

        The samples are those that `say` returns for the same seed, except that a stream does not
        speak a bad chunk again: what was handed out cannot be taken back. With ``retry`` it
        does, and hands out each chunk of the text when it is kept. Arguments and errors are
        those of `say`; audio is read when the first samples are asked for.
        """
        return self._start(
            text, reference, prompt_audio, prompt_text, _options(options, overrides), cancel,
            progress, make_noise, retry=retry,
        )  # fmt: skip

    def _start(
        self,
        text: str,
        reference: AudioSource | StoredVoice | None,
        prompt_audio: AudioSource | None,
        prompt_text: str | None,
        options: SpeechOptions,
        cancel: CancelToken | None,
        progress: OnProgress | None,
        make_noise: MakeNoise,
        *,
        retry: bool,
    ) -> SpeechStream:
        if cancel is not None and not isinstance(cancel, CancelToken):
            raise UsageError("cancel is no CancelToken.", remedy="Make one with CancelToken().")
        if progress is not None and not callable(progress):
            raise UsageError("progress cannot be called.", remedy="Give a function or None.")
        if (prompt_audio is None) != (prompt_text is None):
            raise UsageError(
                "Prompt audio and prompt text go together, one is missing.",
                remedy="Give both, or give the audio as reference.",
            )
        words = normalize_text(text)
        if prompt_text is not None:
            # Both texts are joined as they are, so the spaces where they meet are the caller's.
            _check_prompt_text(prompt_text)
            words = " " * text[:1].isspace() + words
        request = SpeechRequest(words, reference, prompt_audio, prompt_text)
        metrics = SpeechMetrics(
            seed=secrets.randbits(31) if options.seed is None else int(options.seed),
            sample_rate=self.sample_rate,
            patch_seconds=self._model.patch_seconds,
            runtime=self.resources.runtime,
            preset=options.preset,
            steps=options.euler_steps,
            cfg=float(options.cfg),
        )
        if self.manifest.synthetic:
            metrics.warnings.append(
                "This bundle holds seeded noise for weights: it makes sound, not speech."
            )
        metrics.providers = self.resources.placement.places
        metrics.npu = self.resources.placement.npu
        metrics.warnings.extend(self.resources.notes)
        if self.resources.fallback:
            metrics.warnings.append(f"{NOT_PREPARED}{self.resources.not_prepared}")
        if self.resources.runtime.note:
            metrics.warnings.append(self.resources.runtime.note)
        if self.resources.kv_fallback:
            metrics.warnings.append(self.resources.kv_fallback)
        token = cancel or CancelToken()
        audio = self._model.speak(
            request, options, metrics, token,
            retry=retry, make_noise=make_noise, progress=progress,
        )  # fmt: skip
        audio = pinned(audio, self.resources.runtime.cores)
        return SpeechStream(self._measured(audio, metrics, token), metrics)

    def _measured(
        self, audio: Iterator[FloatArray], metrics: SpeechMetrics, cancel: CancelToken
    ) -> Iterator[FloatArray]:
        """Run one at a time, and account for what it cost."""
        if not self._turn.take(audio, cancel):
            return
        try:
            with MemoryWatch() as memory:
                metrics.started, cpu = time.perf_counter(), time.process_time()
                read = disk_read_bytes()
                try:
                    for samples in audio:
                        metrics.mark_first_audio()
                        metrics.samples += len(samples)
                        yield samples
                        if not self._turn.keep(audio):
                            return
                finally:
                    getattr(audio, "close", lambda: None)()
                    metrics.wall_s = time.perf_counter() - metrics.started
                    metrics.cpu_s = time.process_time() - cpu
                    memory.take()
                    metrics.peak_rss_anon_bytes = memory.peak
                    metrics.warnings += self.resources.placement.notes
                    metrics.warnings += self.resources.unfit.values()
                    metrics.disk_read_bytes = (disk_read_bytes() or 0) - (read or 0)
                    slow = (self._reread(metrics), self.resources.guard.slowdown())
                    metrics.warnings += filter(None, slow)
        finally:
            self._turn.give(audio)

    def _reread(self, metrics: SpeechMetrics) -> str:
        prepared = self.resources.prepared
        files = prepared.info.files.values() if prepared is not None else ()
        return reread_warning(metrics.disk_read_bytes, sum(file.size for file in files))


def _check_prompt_text(text: str) -> None:
    try:
        normalize_text(text)
    except TextError as error:
        raise TextError(f"Prompt text: {error.message}", remedy=error.remedy) from error


def _options(options: SpeechOptions | None, overrides: dict[str, object]) -> SpeechOptions:
    base = options if options is not None else SpeechOptions()
    if not isinstance(base, SpeechOptions):
        raise UsageError(
            f"options is a {type(base).__name__}.", remedy="It must be SpeechOptions or None."
        )
    unknown = sorted(set(overrides) - set(SpeechOptions.__dataclass_fields__))
    if unknown:
        raise UsageError(
            f"Unknown option {', '.join(unknown)}.",
            remedy=f"There are {', '.join(SpeechOptions.__dataclass_fields__)}.",
        )
    return replace(base, **overrides) if overrides else base  # type: ignore[arg-type]
