"""Our side: a checkpoint, its f32 bundle and the loaded voice, with the same things recorded."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import onnx
from parity_cases import (
    PROMPT_TEXT,
    Clips,
    FloatArray,
    Mode,
    Options,
    PositionNoise,
    checkpoint_seed,
)
from parity_run import Run

from boardvoice import Voice
from device_profiles.schema import KvSection, Profile
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.cancel import CancelToken
from edge_runtime.kv_cache import KVCache
from edge_runtime.speech import Speech, SpeechMetrics, SpeechOptions
from edge_runtime.voxcpm2 import model as model_module
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.prompt import Prefix, VoicePrompt
from export.synthetic import RECIPES, make_checkpoint
from export.voxcpm2.exporter import export_voxcpm2

_BACKEND = OrtBackend(threads=1, spinning=False)


class OurVoice:
    """A recipe from checkpoint to loaded voice.

    Args:
        recipe: Key of ``RECIPES``.
        folder: Takes checkpoint and bundle.
        clips: Prompt audio.
    """

    def __init__(self, recipe: str, folder: Path, clips: Clips) -> None:
        self.checkpoint = make_checkpoint(
            folder / "checkpoint", RECIPES[recipe], seed=checkpoint_seed(recipe), dtype="f32"
        )
        self.bundle = folder / "bundle"
        export_voxcpm2(self.checkpoint, self.bundle, weights="f32")
        self._clips = clips
        self._blocks = len(RECIPES[recipe].config().audio_vae_config.decoder_rates)
        self.voice = self.load()

    def load(self, bucket_rows: int = 256, piece_rows: int | None = None) -> Voice:
        """Load the bundle with KV buckets, and pieces of the prefix, of these sizes."""
        profile = Profile(name="parity", title="", kv=KvSection(bucket_rows=bucket_rows))
        voice = Voice.load(self.bundle, profile=profile, backend=_BACKEND)
        if piece_rows is not None:
            self._model(voice).memory.most_rows = piece_rows
        return voice

    def encode(self, path: Path, padding: str) -> FloatArray:
        """Patches [N, P, D] of a clip."""
        return self._model().encode(path, pad=padding, trim=False, cancel=CancelToken())

    def run(self, mode: Mode, options: Options, seed: int, *, voice: Voice | None = None) -> Run:
        """Run once below the public API for the values inside, and twice through it."""
        model = self._model(voice)
        encodings = {}
        if mode.reference:
            encodings["reference"] = self.encode(self._clips.reference(seed), "right")
        if mode.prompt:
            encodings["prompt"] = self.encode(self._clips.prompt(seed), "left")
        prompt = VoicePrompt(
            encodings.get("reference"),
            encodings.get("prompt"),
            PROMPT_TEXT if mode.prompt else "",
        )
        hidden, residual = self._prefill(model.prefixes.build(mode.text, prompt))
        latents, logits = self._decode(model, mode, prompt, options, seed)
        return Run(
            tokens=model.prefixes._tokenizer.encode(mode.spoken),
            encodings=encodings,
            hidden=hidden,
            residual=residual,
            latents=latents,
            stop_logits=logits,
            audio=self.say(mode, options, seed, voice=voice).audio,
            streamed=self.streamed(mode, options, seed, voice=voice),
        )

    def say(self, mode: Mode, options: Options, seed: int, *, voice: Voice | None = None) -> Speech:
        """The whole reply through `Voice.say`."""
        return (voice or self.voice).say(mode.text, **self._request(mode, options, seed))

    def streamed(
        self, mode: Mode, options: Options, seed: int, *, voice: Voice | None = None
    ) -> FloatArray:
        """The same through `Voice.stream`, put together."""
        chunks = (voice or self.voice).stream(mode.text, **self._request(mode, options, seed))
        return np.concatenate(list(chunks))

    def _request(self, mode: Mode, options: Options, seed: int) -> dict[str, object]:
        return {
            "reference": self._clips.reference(seed) if mode.reference else None,
            "prompt_audio": self._clips.prompt(seed) if mode.prompt else None,
            "prompt_text": PROMPT_TEXT if mode.prompt else None,
            "options": _speech_options(options),
            "make_noise": lambda _seed, _chunk: PositionNoise(seed, self._blocks),
        }

    def _model(self, voice: Voice | None = None) -> model_module.VoxCpm2Model:
        return (voice or self.voice)._model._model

    def _decode(
        self,
        model: model_module.VoxCpm2Model,
        mode: Mode,
        prompt: VoicePrompt,
        options: Options,
        seed: int,
    ) -> tuple[FloatArray, FloatArray]:
        """Latents [N, P, D], and the stop logits [N, 2] that each patch was judged by."""
        made: list[LanguageModel] = []

        def remember(*arguments: object, **options: object) -> LanguageModel:
            made.append(LanguageModel(*arguments, **options))
            return made[-1]

        speech_options = _speech_options(options)
        utterance, audio = model.speak(
            mode.text,
            prompt,
            speech_options,
            model.solver(speech_options),
            PositionNoise(seed, self._blocks),
            SpeechMetrics(0, model.sample_rate, model.patch_seconds),
            CancelToken(),
        )
        logits = []
        with mock.patch.object(model_module, "LanguageModel", remember):
            for _samples in audio:
                logits.append(made[0].output.stop_logits.copy())
        return np.stack(utterance.patches), np.concatenate(logits)

    def _prefill(self, prefix: Prefix) -> tuple[FloatArray, FloatArray]:
        """Values inside ``lm.onnx`` for the whole prefix at once."""
        tapped, names = self._tapped_lm()
        model = self._model()
        parts = [(prefix.rows, prefix.is_audio)]
        if prefix.reference is not None:
            parts.insert(0, model.prefixes.reference_rows(prefix.reference))
        inputs, is_audio = (np.concatenate(part) for part in zip(*parts, strict=True))
        rows = prefix.total_rows
        cache = KVCache(model.kv_shape, rows)
        lm = LanguageModel(_BACKEND.load(tapped), model.spec, cache)
        hidden = np.empty((1, rows, model.spec.hidden), np.float32)
        residual = np.empty((1, 1, model.spec.hidden), np.float32)
        binding = lm._bind(
            np.ascontiguousarray(inputs[None]),
            np.ascontiguousarray(is_audio[None, :, None]),
        )
        for name, array in zip(names, (hidden, residual), strict=True):
            binding.output(name, array)
        lm._append(binding, rows)
        return hidden[0], residual[0, 0]

    def _tapped_lm(self) -> tuple[Path, tuple[str, str]]:
        """`lm.onnx` with two more outputs, beside it, where the weights are."""
        file = self.bundle / self._model().spec.graphs["lm"]
        graph = onnx.load(file, load_external_data=False)
        (projection,) = (
            node for node in graph.graph.node if node.name == "res_to_dit_proj/product"
        )
        names = ("semantic_hidden", projection.input[0])
        tapped = file.with_name("tapped-lm.onnx")
        if not tapped.exists():
            for name in names:
                graph.graph.output.append(
                    onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
                )
            onnx.save(graph, tapped)
        return tapped, names


def _speech_options(options: Options) -> SpeechOptions:
    return SpeechOptions(
        seed=0,
        steps=options.steps,
        cfg=options.cfg,
        min_len=options.min_len,
        max_len=options.max_len,
        retry_badcase=False,
        retry_ratio=options.ratio,
    )
