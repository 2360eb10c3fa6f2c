"""Whole bundles in every weight format: they run, stay near f32, and come out the same twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from device_profiles.catalog import load_profile
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.bundle import Bundle
from edge_runtime.cancel import CancelToken
from edge_runtime.noise import SeededNoise
from edge_runtime.resources import Resources
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.model import VoxCpm2Model
from edge_runtime.voxcpm2.prompt import VoicePrompt
from export.synthetic import RECIPES, make_checkpoint
from export.voxcpm2.exporter import export_voxcpm2

PLANS = ["f32", "f16", "int8", "int4"]
TEXTS = ["hello world", "The quick brown fox jumps.", "one two three four five six", "a"]
# dB over the first four patches of each text, on seeded noise 64 wide. Measured on x86-64 with
# AVX2: int8 31.8, int4 17.2; f16 is exact, since it holds every bf16 value of this checkpoint.
# Later patches drift on their own: one step of the scalar quantizer is not small.
FLOORS = {"f16": 50.0, "int8": 25.0, "int4": 12.0}


def latents(bundle: Path, patches: int = 4) -> np.ndarray:
    model = VoxCpm2Model(
        Bundle.open(bundle),
        Resources(OrtBackend(threads=1, spinning=False), load_profile("generic-x86-64")),
    )
    options, found = SpeechOptions(max_len=patches), []
    for seed, text in enumerate(TEXTS):
        metrics = SpeechMetrics(seed, model.sample_rate, model.patch_seconds)
        utterance, audio = model.speak(
            text, VoicePrompt(), options, model.solver(options), SeededNoise(seed), metrics,
            CancelToken(),
        )  # fmt: skip
        for _ in audio:
            pass
        found.append(np.stack(utterance.patches))
    return np.stack(found)


def snr_db(exact: np.ndarray, found: np.ndarray) -> float:
    error = np.square(exact.astype(np.float64) - found).sum()
    return float(10 * np.log10(np.square(exact.astype(np.float64)).sum() / max(error, 1e-30)))


@pytest.mark.parametrize("weights", sorted(FLOORS))
def test_latents_stay_near_those_of_f32(weights: str, make_bundle) -> None:
    found = snr_db(latents(make_bundle("tiny", "f32")), latents(make_bundle("tiny", weights)))
    assert found > FLOORS[weights]


def test_f16_keeps_an_f32_checkpoint_to_f16s_precision(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny", RECIPES["tiny"], dtype="f32")
    for weights in ("f32", "f16"):
        export_voxcpm2(checkpoint, tmp_path / weights, weights=weights)
    assert snr_db(latents(tmp_path / "f32", 1), latents(tmp_path / "f16", 1)) > FLOORS["f16"]


def test_formats_take_less_room_in_this_order(make_bundle) -> None:
    def lm_bytes(weights: str) -> int:
        return (make_bundle("tiny", weights) / "graphs/lm.weights").stat().st_size

    assert lm_bytes("f32") > lm_bytes("f16") > lm_bytes("int8") > lm_bytes("int4")


@pytest.mark.parametrize("weights", PLANS)
def test_the_same_checkpoint_gives_the_same_bytes(
    weights: str, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        export_voxcpm2(tiny_checkpoint, tmp_path / name, weights=weights)
    one, two = (
        {str(p.relative_to(tmp_path / name)): p.read_bytes()
         for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("one", "two")
    )  # fmt: skip
    assert one == two


@pytest.mark.parametrize("model_format", ["sharded", "bin"])
def test_the_checkpoints_format_does_not_change_the_bundle(
    model_format, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    other = make_checkpoint(
        tmp_path / "tiny", RECIPES["tiny"], model_format=model_format, vae_format="pth"
    )
    first = export_voxcpm2(tiny_checkpoint, tmp_path / "one", weights="int8")
    second = export_voxcpm2(other, tmp_path / "two", weights="int8")
    assert first.files == second.files


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "full"])
def test_every_recipe_speaks_in_every_format(recipe: str, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / recipe, RECIPES[recipe])
    rate = RECIPES[recipe].config().audio_vae_config.sample_rate
    audio = np.random.default_rng(0).uniform(-0.3, 0.3, rate // 2), rate
    spoken = {}
    for weights in PLANS:
        export_voxcpm2(checkpoint, tmp_path / weights, weights=weights)
        said = Voice.load(tmp_path / weights, threads=1, verify=False).say(
            "hello there", reference=audio, seed=1, steps=3, max_len=2
        )
        assert said.metrics.patches == 2
        assert np.isfinite(said.audio).all()
        assert np.abs(said.audio).max() <= 1
        spoken[weights] = said.audio
    assert snr_db(spoken["f32"], spoken["f16"]) > 30
    assert snr_db(spoken["f32"], spoken["int8"]) > 6


def test_progress_names_the_files_and_reaches_the_end(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    told = []
    export_voxcpm2(
        tiny_checkpoint, tmp_path / "out", weights="int8", progress=lambda *item: told.append(item)
    )
    done = [item[1] for item in told]
    assert done == sorted(done)
    assert len({item[2] for item in told}) == 1
    assert 0.9 * told[-1][2] <= done[-1] <= told[-1][2]
    assert {"graphs/lm.weights", "embedding.bin"} <= {item[0] for item in told}


def test_what_was_asked_for_is_recorded(tiny_checkpoint: Path, tmp_path: Path) -> None:
    manifest = export_voxcpm2(
        tiny_checkpoint, tmp_path / "out", weights="int4", profile="generic-aarch64", name="mine"
    )
    assert (manifest.family, manifest.weights) == ("voxcpm2", "int4")
    assert (manifest.profile, manifest.name) == ("generic-aarch64", "mine")
    assert Bundle.open(tmp_path / "out").manifest == manifest
