"""VoxCPM2 as a whole: sessions, and one utterance after another."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from edge_runtime.ahead import Ahead
from edge_runtime.audio.load import AudioSource, load_audio
from edge_runtime.audio.trim import trim_silence
from edge_runtime.backends.protocol import Graph
from edge_runtime.bundle import MANIFEST, Bundle, describe_errors
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import BundleError, CancelledError
from edge_runtime.kv_cache import KVCache, KVPool
from edge_runtime.memory import malloc
from edge_runtime.memory.guard import LadderStep
from edge_runtime.noise import Noise
from edge_runtime.prepare.prepared_info import GraphCost
from edge_runtime.resources import Resources
from edge_runtime.speech import SpeechMetrics, SpeechOptions, StopReason
from edge_runtime.tokenizer import Tokenizer
from edge_runtime.voxcpm2.decode import PatchDecoder, PatchLimit, ReasonedPatch, ReasonedPatches
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.prefix_store import PrefixStore, fingerprint
from edge_runtime.voxcpm2.prompt import Prefix, PrefixBuilder, VoicePrompt
from edge_runtime.voxcpm2.run_memory import RunMemory, estimated_workspaces
from edge_runtime.voxcpm2.spec import GraphName, VoxCpm2Spec, kv_shape
from edge_runtime.voxcpm2.vae import VaeDecoder, encode_audio

FloatArray = npt.NDArray[np.float32]

_MIB = 1 << 20
# Above this share of clipped keys and values the result says so; see docs/memory.md.
_MOST_CLIPPED = 0.005


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
        resources: The device.

    Raises:
        BundleError: The manifest's description is wrong.
        BackendError: A graph cannot be loaded.
        MemoryBudgetError: There is no room for the graphs.
    """

    def __init__(self, bundle: Bundle, resources: Resources) -> None:
        self.spec = read_spec(bundle)
        self._bundle = bundle
        self._resources = resources
        self._guard = resources.guard
        kv = resources.profile.kv
        self._files = dict(self.spec.graphs)
        if kv.dtype != "f32":
            self._files["lm"] = bundle.graphs(kv.dtype)["lm"]
        self.pool = KVPool(kv.pool_mib * _MIB)
        self.store = PrefixStore(kv.kept_voices_mib * _MIB)
        self.kv_shape = kv_shape(self.spec, kv)
        resources.estimates.update(estimated_workspaces(self.spec, self.kv_shape.dtype))
        self.memory = RunMemory(self._guard, self._cost, self.kv_shape.row_bytes)
        # Only cloning needs it: loaded with the first reference or prompt audio.
        self._vae_encoder: Graph | None = None
        self._encoding = False
        self._add_ladder()
        self._lm = self._load("lm")
        self._patch_encoder = self._load("patch_encoder")
        self._flow = self._load("flow")
        self._flow_time = self._load("flow_time")
        self._flow_condition = self._load("flow_condition")
        self._vae_decoder = self._load("vae_decoder")
        if (tokenizer := bundle.manifest.files.get(self.spec.tokenizer)) is not None:
            needed = Tokenizer.memory_bytes(tokenizer.size)
            self._guard.reserve(needed, "Loading the tokenizer")
        self.prefixes = PrefixBuilder(bundle, self.spec, self._patch_encoder, self.memory.prefix)
        # What reading the tokenizer took for a while would look like memory in use.
        malloc.trim()

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
        key = fingerprint(audio)
        if (kept := self.store.clip(key)) is not None:
            return kept
        patches = self._encode(audio, cancel)
        if patches is None:
            raise CancelledError("Cancelled while the reference audio was encoded.")
        self.store.keep_clip(key, patches)
        return patches

    def _encode(self, audio: FloatArray, cancel: CancelToken) -> FloatArray | None:
        # Making room while it is about to run must not take it away.
        self._encoding = True
        try:
            if self._vae_encoder is None:
                self._vae_encoder = self._load("vae_encoder")
            return encode_audio(self._vae_encoder, self.spec, audio, cancel, self.memory.clip)
        finally:
            self._encoding = False

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
            steps=options.euler_steps, cfg=options.cfg, even=options.even,
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
    ) -> tuple[Utterance, Generator[FloatArray, None, None]]:
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
            The utterance, and a generator of its audio, one patch f32 [P * hop] at a time. Close
            it when it is not read to its end: it holds the request's KV buffers.

        Raises:
            CapacityError: The prefix does not fit the KV rows there are.
            TextError: The text would become control tokens.
        """
        with metrics.timed("text"):
            prefix = self.prefixes.build(text, voice)
        rows = prefix.total_rows
        # Refused before anything is computed.
        self.kv_shape.capacity(rows)
        limit = PatchLimit.of(options, prefix.target_tokens, self.kv_shape.max_rows - rows)
        utterance = Utterance(rows, prefix.target_tokens, limit.patches, [])

        def audio() -> Generator[FloatArray, None, None]:
            # Speech takes about two patches per token; longer replies grow the cache.
            expected = min(limit.patches, 2 * prefix.target_tokens + 16)
            capacity = self.kv_shape.capacity(rows + expected - 1)
            cache = KVCache(self.kv_shape, capacity, pool=self.pool, guard=self._guard)
            lm = LanguageModel(self._lm, self.spec, cache, choose_rows=self.memory.rows)
            try:
                self._reserve(prefix, cache)
                metrics.kv_bytes = max(metrics.kv_bytes, cache.nbytes)
                decoder = PatchDecoder(
                    self.spec, lm, solver, self._patch_encoder, metrics, self._guard
                )
                vae = VaeDecoder(self._vae_decoder, self.spec, noise)
                token = CancelToken(cancel)
                patches: ReasonedPatches | Ahead[ReasonedPatch] = decoder.patches(
                    prefix, self._prefill, limit, options.min_len, noise, token
                )
                if metrics.overlapped:
                    patches = Ahead(patches, token.cancel)
                with closing(patches):
                    if len(prefix.context):
                        with metrics.timed("vae_decode"):
                            for patch in prefix.context:
                                vae.decode(patch)
                    for patch, reason in patches:
                        utterance.patches.append(patch)
                        utterance.stop_reason = reason
                        with metrics.timed("vae_decode"):
                            samples = vae.decode(patch)
                        yield samples
                utterance.stop_reason = decoder.stop_reason
                _note_clipping(cache, metrics)
            finally:
                # The thread that computed ahead has ended, so nobody uses these any more.
                lm.release()
                # What odd shapes gave back lies in the heap until it is asked for.
                malloc.trim()

        return utterance, audio()

    def _reserve(self, prefix: Prefix, cache: KVCache) -> None:
        reference = prefix.reference
        kept = reference is None or self.store.rows(fingerprint(reference)) is not None
        self.memory.start(
            rows=prefix.total_rows,
            reference_patches=0 if reference is None or kept else len(reference),
            capacity=cache.capacity,
            fresh_bytes=cache.fresh_bytes,
        )

    def _prefill(self, lm: LanguageModel, prefix: Prefix, cancel: CancelToken) -> bool:
        """Bring the LM to the end of the prefix; a voice used before costs a copy of its rows."""
        if prefix.reference is not None and not self._prefill_reference(
            lm, prefix.reference, cancel
        ):
            return False
        return lm.prefill(prefix.rows, prefix.is_audio, cancel)

    def _prefill_reference(
        self, lm: LanguageModel, reference: FloatArray, cancel: CancelToken
    ) -> bool:
        key = fingerprint(reference)
        if (kept := self.store.rows(key)) is not None:
            lm.cache.restore(kept)
            return True
        if not lm.prefill(*self.prefixes.reference_rows(reference), cancel):
            return False
        count = lm.cache.rows
        needed = count * self.kv_shape.row_bytes
        # Keeping a voice is a convenience: never at the cost of a refusal or of the ladder.
        if self.store.has_room(needed) and self._guard.has_room(needed):
            self.store.keep_rows(key, lm.cache.snapshot(count))
        return True

    def _add_ladder(self) -> None:
        for name, action in (
            ("emptied the KV pool and the kept voices", self._empty_pools),
            ("dropped the VAE encoder", self._drop_encoder),
            ("forgot encoded references", self._forget_clips),
        ):
            self._guard.add_step(LadderStep(name, action))

    def _empty_pools(self) -> bool:
        emptied = self.pool.clear() | self.store.clear_rows()
        malloc.trim()
        return emptied

    def _drop_encoder(self) -> bool:
        held = self._vae_encoder is not None and not self._encoding
        if held:
            self._vae_encoder = None
            self._guard.device_bytes.pop("vae_encoder", None)
        gc.collect()
        malloc.trim()
        return held

    def _forget_clips(self) -> bool:
        held = self.store.clear_clips()
        malloc.trim()
        return held

    def _cost(self, name: GraphName) -> GraphCost:
        return self._resources.cost(self._bundle, self._files[name])

    def _load(self, name: GraphName) -> Graph:
        if name not in self._files:
            raise BundleError(
                f"{self._bundle.folder / MANIFEST} names no graph {name!r}.",
                remedy="Export the bundle again.",
            )
        self.memory.forget(name)
        return self._resources.load(self._bundle, self._files[name])


def _note_clipping(cache: KVCache, metrics: SpeechMetrics) -> None:
    """What ran past the calibrated range of an int8 cache is cut off: the user is told once."""
    share = cache.clipped_share()
    if share > _MOST_CLIPPED >= metrics.kv_clipped:
        metrics.warnings.append(
            f"{share:.2%} of the keys and values ran past the range of the int8 KV cache; "
            "set kv.dtype to f16 in the profile if this voice sounds worse than others."
        )
    metrics.kv_clipped = max(metrics.kv_clipped, share)


def read_spec(bundle: Bundle) -> VoxCpm2Spec:
    """The family's part of a manifest.

    Raises:
        BundleError: It is wrong; the key is named.
    """
    try:
        return VoxCpm2Spec.model_validate(bundle.manifest.model)
    except ValidationError as error:
        raise BundleError(
            f"{bundle.folder / MANIFEST}: model: {describe_errors(error)}.",
            remedy="Export the bundle again with this version.",
        ) from error
