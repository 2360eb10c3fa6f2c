"""VoxCPM2 as a whole: sessions, and one utterance after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from device_profiles.schema import Profile
from edge_runtime.audio.load import AudioSource, load_audio
from edge_runtime.audio.trim import trim_silence
from edge_runtime.backends.protocol import Backend, Graph
from edge_runtime.bundle import MANIFEST, Bundle, describe_errors
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import BundleError, CancelledError
from edge_runtime.kv_cache import KVShape
from edge_runtime.noise import Noise
from edge_runtime.speech import SpeechMetrics, SpeechOptions, StopReason
from edge_runtime.voxcpm2.decode import PatchDecoder, PatchLimit
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.prompt import PrefixBuilder, VoicePrompt
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from edge_runtime.voxcpm2.vae import VaeDecoder, encode_audio

FloatArray = npt.NDArray[np.float32]


@dataclass
class Utterance:
    """One run over one chunk of text; iterate `audio`, then read the rest.

    Attributes:
        prefix_rows: KV rows before the first patch.
        tokens: Tokens of the text.
        limit: Most patches it may take.
        patches: Latent patches [P, D] so far.
        stop_reason: Why it ended, once it has.
    """

    prefix_rows: int
    tokens: int
    limit: int
    patches: list[FloatArray]
    stop_reason: StopReason = "cancelled"


class VoxCpm2Model:
    """Loaded graphs of one bundle.

    Args:
        bundle: An opened VoxCPM2 bundle.
        backend: Loads the graphs.
        profile: Limits of the device.

    Raises:
        BundleError: The manifest's description is wrong.
        BackendError: A graph cannot be loaded.
    """

    def __init__(self, bundle: Bundle, backend: Backend, profile: Profile) -> None:
        self.spec = _spec(bundle)
        self._bundle = bundle
        self._backend = backend
        self._lm = self._load("lm")
        self._patch_encoder = self._load("patch_encoder")
        self._flow = self._load("flow")
        self._flow_time = self._load("flow_time")
        self._flow_condition = self._load("flow_condition")
        self._vae_decoder = self._load("vae_decoder")
        # Only cloning needs it: loaded with the first reference or prompt audio.
        self._vae_encoder: Graph | None = None
        self.prefixes = PrefixBuilder(bundle, self.spec, self._patch_encoder)
        self.kv_shape = KVShape(
            layers=self.spec.kv.layers,
            num_kv_heads=self.spec.kv.num_kv_heads,
            head_size=self.spec.kv.head_size,
            max_rows=min(self.spec.kv.max_rows, profile.kv.max_rows),
            bucket_rows=profile.kv.bucket_rows,
        )

    @property
    def sample_rate(self) -> int:
        """Samples per second of what is spoken."""
        return self.spec.vae_decoder.sample_rate

    @property
    def patch_seconds(self) -> float:
        """Audio per patch in seconds."""
        return self.spec.patch_seconds

    def encode(
        self, source: AudioSource, *, pad: str, trim: bool, cancel: CancelToken
    ) -> FloatArray:
        """Load and encode audio to whole patches.

        Args:
            source: A path, a file object, or samples with their rate.
            pad: Side that zeros fill up to a whole patch: ``right`` (a reference) or ``left``
                (a prompt, so that the reply follows its last sample).
            trim: Trim silence at both ends first.
            cancel: Checked before every chunk.

        Returns:
            Patches [N, P, D].

        Raises:
            AudioError: The audio cannot be used.
            CancelledError: `cancel` was set.
        """
        stream = self.spec.vae_encoder
        audio = load_audio(source, stream.sample_rate)
        if trim:
            audio = trim_silence(audio, stream.sample_rate)
        missing = -len(audio) % (self.spec.patch_size * stream.hop)
        audio = np.pad(audio, (missing, 0) if pad == "left" else (0, missing))
        if self._vae_encoder is None:
            self._vae_encoder = self._load("vae_encoder")
        patches = encode_audio(self._vae_encoder, self.spec, audio, cancel)
        if patches is None:
            raise CancelledError("Cancelled while the reference audio was encoded.")
        return patches

    def rows_needed(self, text: str, voice: VoicePrompt, options: SpeechOptions) -> int:
        """KV rows that a text may take at most: prefix and longest reply."""
        spoken = voice.prompt_text + text if voice.prompt is not None else text
        prefix = voice.rows + self.prefixes.count_tokens(spoken) + 1
        tokens = self.prefixes.count_tokens(text)
        return prefix + PatchLimit.of(options, tokens, self.kv_shape.max_rows).patches - 1

    def solver(self, options: SpeechOptions) -> FlowSolver:
        """Flow solver for these options."""
        return FlowSolver(
            self.spec, self._flow, self._flow_time, self._flow_condition,
            steps=options.steps, cfg=options.cfg,
        )  # fmt: skip

    def speak(
        self,
        text: str,
        voice: VoicePrompt,
        options: SpeechOptions,
        solver: FlowSolver,
        noise: Noise,
        metrics: SpeechMetrics,
        cancel: CancelToken,
    ) -> tuple[Utterance, Iterator[FloatArray]]:
        """Prepare one chunk of text; nothing heavy runs until the iterator is advanced.

        Args:
            text: Normalised text that fits the KV rows.
            voice: Encoded audio to start from.
            options: How to speak.
            solver: Made by `solver` from the same options.
            noise: The utterance's noise.
            metrics: Takes times and sizes.
            cancel: Ends the run within one patch.

        Returns:
            The utterance, and an iterator of its audio, one patch f32 [P * hop] at a time.

        Raises:
            CapacityError: The prefix does not fit the KV rows there are.
            TextError: The text would become control tokens.
        """
        with metrics.timed("text"):
            prefix = self.prefixes.build(text, voice)
        rows = len(prefix.rows)
        # Refused before anything is computed.
        self.kv_shape.capacity(rows)
        limit = PatchLimit.of(options, prefix.target_tokens, self.kv_shape.max_rows - rows)
        utterance = Utterance(rows, prefix.target_tokens, limit.patches, [])

        def audio() -> Iterator[FloatArray]:
            lm = LanguageModel(self._lm, self.spec, self.kv_shape, rows + limit.patches - 1)
            metrics.kv_bytes = max(metrics.kv_bytes, lm.cache.nbytes)
            decoder = PatchDecoder(self.spec, lm, solver, self._patch_encoder, metrics)
            vae = VaeDecoder(self._vae_decoder, self.spec, noise)
            with metrics.timed("vae_decode"):
                for patch in prefix.context:
                    vae.decode(patch)
            for patch in decoder.patches(prefix, limit, options.min_len, noise, cancel):
                utterance.patches.append(patch)
                utterance.stop_reason = decoder.stop_reason
                with metrics.timed("vae_decode"):
                    samples = vae.decode(patch)
                yield samples
            utterance.stop_reason = decoder.stop_reason

        return utterance, audio()

    def _load(self, name: str) -> Graph:
        graphs = self.spec.graphs
        if name not in graphs:
            raise BundleError(
                f"{self._bundle.folder / MANIFEST} names no graph {name!r}.",
                remedy="Export the bundle again.",
            )
        return self._backend.load(self._bundle.path(graphs[name]))


def _spec(bundle: Bundle) -> VoxCpm2Spec:
    try:
        return VoxCpm2Spec.model_validate(bundle.manifest.model)
    except ValidationError as error:
        raise BundleError(
            f"{bundle.folder / MANIFEST}: model: {describe_errors(error)}.",
            remedy="Export the bundle again with this version.",
        ) from error
