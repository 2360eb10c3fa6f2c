"""Speech that a bundle in the making says, to see how large its values get in real decoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from device_profiles.catalog import usable_cpus
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.protocol import Graph
from edge_runtime.bundle import Bundle
from edge_runtime.cancel import CancelToken
from edge_runtime.kv_cache import KVCache, KVShape
from edge_runtime.noise import SeededNoise
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.voxcpm2.decode import PatchDecoder, PatchLimit
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.prompt import Prefix, PrefixBuilder, VoicePrompt
from edge_runtime.voxcpm2.spec import GraphName, VoxCpm2Spec

FloatArray = npt.NDArray[np.float32]
# Told the cache of a run when it ends.
OnCache = Callable[[KVCache], None]

# Spoken one after another: alone, with the first as reference, and going on from the second.
TEXTS = (
    "Good morning, the next train to the harbour leaves at nine twenty from platform four.",
    "请注意，今天下午三点在二楼会议室举行培训，请大家准时参加。",
    "Bitte halten Sie Abstand! Der Preis beträgt 48,50 Euro, danke schön.",
)
_LEAST_PATCHES, _MOST_PATCHES = 24, 48
_BUCKET_ROWS = 64


@dataclass(frozen=True)
class Reply:
    """What one run said.

    Attributes:
        text: Its text.
        patches: Latent patches [N, P, D].
    """

    text: str
    patches: FloatArray


class CalibrationSpeaker:
    """The graphs that decoding takes; no audio is made.

    Args:
        bundle: Holds the graphs, the embedding and the tokenizer.
        spec: Sizes and files.
        wrap_flow: Puts something between the solver and the estimator.
    """

    def __init__(
        self, bundle: Bundle, spec: VoxCpm2Spec, wrap_flow: Callable[[Graph], Graph] | None = None
    ) -> None:
        backend = OrtBackend(usable_cpus(), spinning=True)
        names: tuple[GraphName, ...] = (
            "lm", "patch_encoder", "flow", "flow_time", "flow_condition",
        )  # fmt: skip
        graphs: dict[GraphName, Graph] = {
            name: backend.load(bundle.path(spec.graphs[name])) for name in names
        }
        if wrap_flow is not None:
            graphs["flow"] = wrap_flow(graphs["flow"])
        self._spec = spec
        self._lm = graphs["lm"]
        self._patch_encoder = graphs["patch_encoder"]
        self._options = SpeechOptions(min_len=_LEAST_PATCHES, max_len=_MOST_PATCHES)
        self._solver = FlowSolver(
            spec, graphs["flow"], graphs["flow_time"], graphs["flow_condition"],
            steps=self._options.euler_steps, cfg=self._options.cfg,
        )  # fmt: skip
        self._prefixes = PrefixBuilder(bundle, spec, self._patch_encoder)
        kv = spec.kv
        self._shape = KVShape(
            kv.layers, kv.num_kv_heads, kv.head_size, kv.max_rows, bucket_rows=_BUCKET_ROWS
        )

    def speak_all(self, on_cache: OnCache | None = None) -> None:
        """Speak `TEXTS`."""
        first = self.speak(TEXTS[0], VoicePrompt(), on_cache)
        second = self.speak(TEXTS[1], VoicePrompt(reference=first.patches), on_cache)
        going_on = VoicePrompt(prompt=second.patches, prompt_text=second.text)
        self.speak(TEXTS[2], going_on, on_cache)

    def speak(self, text: str, voice: VoicePrompt, on_cache: OnCache | None = None) -> Reply:
        """Speak one text."""
        prefix = self._prefixes.build(text, voice)
        cache = KVCache(self._shape, prefix.total_rows)
        lm = LanguageModel(self._lm, self._spec, cache)
        metrics = SpeechMetrics(0, self._spec.vae_decoder.sample_rate, self._spec.patch_seconds)
        decoder = PatchDecoder(self._spec, lm, self._solver, self._patch_encoder, metrics)
        free = self._shape.max_rows - prefix.total_rows
        limit = PatchLimit.of(self._options, prefix.target_tokens, free)
        patches = decoder.patches(
            prefix, self._prefill, limit, self._options.min_len, SeededNoise(0), CancelToken()
        )
        said = np.stack([patch for patch, _ in patches])
        if on_cache is not None:
            on_cache(cache)
        return Reply(text, said)

    def _prefill(self, lm: LanguageModel, prefix: Prefix, cancel: CancelToken) -> bool:
        if prefix.reference is not None:
            lm.prefill(*self._prefixes.reference_rows(prefix.reference), cancel)
        return lm.prefill(prefix.rows, prefix.is_audio, cancel)
