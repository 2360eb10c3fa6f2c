"""`lm.kv_int8.onnx`: ranges of keys and values, measured while the exported LM speaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import onnx

from device_profiles.catalog import usable_cpus
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.bundle import Bundle
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import CheckpointError
from edge_runtime.kv_cache import KVCache, KVShape
from edge_runtime.noise import SeededNoise
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.voxcpm2.decode import PatchDecoder, PatchLimit
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.prompt import Prefix, PrefixBuilder, VoicePrompt
from edge_runtime.voxcpm2.spec import GraphName, VoxCpm2Spec
from export.bundle_writer import GRAPHS, BundleWriter
from export.graph.int8_cache import KVRanges, with_int8_cache

FloatArray = npt.NDArray[np.float32]

# Range of int8 over the largest magnitude measured; see docs/decisions.md.
MARGIN = 1.5
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
    """What one measured run said.

    Attributes:
        text: Its text.
        patches: Latent patches [N, P, D].
    """

    text: str
    patches: FloatArray


def add_int8_cache(writer: BundleWriter, bundle: Bundle, spec: VoxCpm2Spec) -> str:
    """Measure the ranges with the graphs written so far and add the int8 variant of the LM.

    Args:
        writer: The bundle's writer.
        bundle: The same bundle as it is now, to run.
        spec: Sizes and files.

    Returns:
        The graph's path in the bundle.

    Raises:
        CheckpointError: Keys or values are not finite.
    """
    # The weights stay in their file.
    model = onnx.load(str(bundle.path(spec.graphs["lm"])), load_external_data=False)
    ranges = measure_ranges(bundle, spec, model)
    data = with_int8_cache(model, ranges, MARGIN).SerializeToString()
    stem = PurePosixPath(spec.graphs["lm"]).stem
    return writer.add_bytes(f"{GRAPHS}/{stem}.kv_int8.onnx", data)


def measure_ranges(bundle: Bundle, spec: VoxCpm2Spec, model: onnx.ModelProto) -> KVRanges:
    """Speak `TEXTS` over an f32 cache and note the largest keys and values of each channel.

    Args:
        bundle: Holds the graphs, the embedding and the tokenizer.
        spec: Sizes and files.
        model: The LM's graph, f32 cache.

    Raises:
        CheckpointError: Keys or values are not finite.
    """
    speaker = _Speaker(bundle, spec)
    ranges = KVRanges.of(model)
    first = speaker.speak(TEXTS[0], VoicePrompt(), ranges)
    second = speaker.speak(TEXTS[1], VoicePrompt(reference=first.patches), ranges)
    going_on = VoicePrompt(prompt=second.patches, prompt_text=second.text)
    speaker.speak(TEXTS[2], going_on, ranges)
    if not all(np.isfinite(found).all() for found in ranges.largest.values()):
        raise CheckpointError(
            f"{bundle.path(spec.graphs['lm'])}: keys or values of the LM are not finite.",
            remedy="Export without --int8-kv, and mistrust this checkpoint.",
        )
    return ranges


class _Speaker:
    """The graphs that decoding takes; no audio is made."""

    def __init__(self, bundle: Bundle, spec: VoxCpm2Spec) -> None:
        backend = OrtBackend(usable_cpus(), spinning=True)
        names: tuple[GraphName, ...] = (
            "lm", "patch_encoder", "flow", "flow_time", "flow_condition",
        )  # fmt: skip
        graphs = {name: backend.load(bundle.path(spec.graphs[name])) for name in names}
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

    def speak(self, text: str, voice: VoicePrompt, ranges: KVRanges) -> Reply:
        """Speak one text and note the ranges of its rows."""
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
        buffers = dict(zip(cache.names("past"), cache.buffers, strict=True))
        ranges.observe(buffers, cache.rows)
        return Reply(text, said)

    def _prefill(self, lm: LanguageModel, prefix: Prefix, cancel: CancelToken) -> bool:
        if prefix.reference is not None:
            lm.prefill(*self._prefixes.reference_rows(prefix.reference), cancel)
        return lm.prefill(prefix.rows, prefix.is_audio, cancel)
