"""How a clip is cut into runs, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from miocodec_cases import tokens_of, voice_of

from edge_runtime.cancel import CancelToken
from edge_runtime.errors import (
    BundleError,
    CancelledError,
    CapacityError,
    CheckpointError,
    MemoryBudgetError,
    UnsupportedError,
    UsageError,
)
from edge_runtime.golden.selftest import selftest
from edge_runtime.loader import LoadOptions, open_device
from edge_runtime.miocodec import stack_run
from edge_runtime.miocodec.codec import Codec
from edge_runtime.miocodec.fsq import Quantizer
from edge_runtime.miocodec.overlap_add import OverlapAdd
from edge_runtime.miocodec.spec import SpectrumSpec, StackSpec
from edge_runtime.miocodec.stack_run import pieces
from export.miocodec.config import load_config
from export.synthetic.miocodec import document

CodecOf = Callable[[int], Codec]
STACK = StackSpec(hidden=48, outputs=48, head_size=16, theta=1e4, block=32, reach=70)


@pytest.mark.parametrize("rows", [1, 31, 1536, 1537, 3000, 12345])
def test_pieces_cover_all_rows_once_and_have_their_surroundings(rows: int) -> None:
    cut = list(pieces(STACK, rows))
    assert cut[0].kept[0] == 0
    assert cut[-1].kept[1] == rows
    for piece in cut:
        assert piece.stop - piece.first <= 1536
        assert piece.first % STACK.block == 0
        assert piece.kept[0] - piece.first >= STACK.reach or piece.first == 0
        assert piece.stop - piece.kept[1] >= STACK.reach or piece.stop == rows
    for before, after in pairwise(cut):
        assert before.kept[1] == after.kept[0]


def test_short_runs_give_what_one_run_gives(
    codec: CodecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, voice = tokens_of(20.0), voice_of(16)
    whole = codec(24000).decode(tokens, voice)
    monkeypatch.setattr(stack_run, "_ROWS", 128)
    cut = codec(24000).decode(tokens, voice)
    assert np.abs(cut - whole).max() <= 2e-6 * np.abs(whole).max()


def test_pieces_are_the_whole_bit_for_bit(codec: CodecOf) -> None:
    tokens, voice = tokens_of(8.0), voice_of(16)
    handed = list(codec(44100).pieces(tokens, voice))
    assert len(handed) > 3
    assert (np.concatenate(handed) == codec(44100).decode(tokens, voice)).all()


@pytest.mark.parametrize(("n_fft", "hop"), [(1920, 480), (392, 98), (50, 20)])
def test_overlap_add_does_not_depend_on_the_cut(n_fft: int, hop: int) -> None:
    spec, rng = SpectrumSpec(n_fft=n_fft, hop=hop), np.random.default_rng(0)
    real, imaginary = rng.standard_normal((2, 23, spec.bins)).astype(np.float32)
    whole = OverlapAdd(spec)
    expected = np.concatenate([whole.push(real, imaginary), whole.finish()])
    assert len(expected) == 23 * hop
    cut = OverlapAdd(spec)
    found = [cut.push(real[a:b], imaginary[a:b]) for a, b in ((0, 1), (1, 3), (3, 20), (20, 23))]
    assert (np.concatenate([*found, cut.finish()]) == expected).all()


def test_every_token_comes_back_from_its_code() -> None:
    quantizer = Quantizer((8, 8, 8, 5, 5))
    every = np.arange(12800)
    codes = quantizer.codes(every)
    assert len(np.unique(codes, axis=0)) == 12800
    half = np.array([4, 4, 4, 2, 2])
    assert (((codes * half + half).round() * [1, 8, 64, 512, 2560]).sum(axis=1) == every).all()


@pytest.mark.parametrize(
    ("tokens", "voice", "samples", "error"),
    [
        (np.array([12800]), voice_of(16), None, UsageError),
        (np.array([-1]), voice_of(16), None, UsageError),
        (np.array([], np.int64), voice_of(16), None, UsageError),
        (np.array([1.5]), voice_of(16), None, UsageError),
        (np.array([1]), voice_of(15), None, UsageError),
        (np.array([1]), np.full(16, np.nan, np.float32), None, UsageError),
        (np.array([1]), voice_of(16), 10, UsageError),
        (np.zeros(15001, np.int64), voice_of(16), None, CapacityError),
        (np.array([1]), voice_of(16), 30_000_000, CapacityError),
    ],
)
def test_what_cannot_be_decoded_is_refused(
    codec: CodecOf, tokens: np.ndarray, voice: np.ndarray, samples: int, error: type
) -> None:
    with pytest.raises(error):
        codec(44100).decode(tokens, voice, samples=samples)


def test_a_cancelled_run_ends(codec: CodecOf) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(CancelledError):
        codec(44100).decode(tokens_of(3.0), voice_of(16), cancel=cancel)
    assert len(codec(44100).decode(tokens_of(0.4), voice_of(16)))


def test_no_room_is_said_before_the_run(codec_bundle: Callable[..., Path]) -> None:
    tight = Codec.load(codec_bundle(44100), threads=1, memory_limit=4 << 30)
    tight.resources.guard.settings = type(tight.resources.guard.settings)(hard_bytes=1 << 20)
    with pytest.raises(MemoryBudgetError, match="wave_"):
        tight.decode(tokens_of(3.0), voice_of(16))


@pytest.mark.parametrize("weights", ["f32", "int8"])
def test_selftest_passes(codec_bundle: Callable[..., Path], weights: str) -> None:
    found = selftest(*open_device(codec_bundle(44100, weights), LoadOptions(threads=1)))
    assert found.passed
    assert {result.component for result in found.results} >= {"content", "wave_head"}


def test_a_prepared_bundle_decodes_the_same(codec_bundle: Callable[..., Path]) -> None:
    plain = Codec.load(codec_bundle(24000), threads=1, prepare="never")
    prepared = Codec.load(codec_bundle(24000), threads=1, prepare="auto")
    assert prepared.resources.prepared is not None
    tokens, voice = tokens_of(3.0), voice_of(16)
    expected = plain.decode(tokens, voice)
    assert np.abs(prepared.decode(tokens, voice) - expected).max() < 1e-5 * np.abs(expected).max()


def test_int8_stays_near_f32(codec_bundle: Callable[..., Path], codec: CodecOf) -> None:
    tokens, voice = tokens_of(3.0), voice_of(16)
    exact = codec(24000).decode(tokens, voice)
    found = Codec.load(codec_bundle(24000, "int8"), threads=1).decode(tokens, voice)
    noise = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 0 < noise < 0.3


def test_another_family_is_no_codec(f32_bundle: Path) -> None:
    with pytest.raises(BundleError, match="not a codec"):
        Codec.load(f32_bundle)


def test_the_variant_with_a_vocoder_is_refused_by_name(tmp_path: Path) -> None:
    data = document("tiny", 44100)
    del data["model"]["init_args"]["config"]["use_wave_decoder"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(UnsupportedError, match="MioVocoder"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("wave_decoder.init_args.window_size", 8, "even"),
        ("wave_prenet.init_args.causal", True, "causal"),
        ("wave_prenet.init_args.qkv_bias", True, "qkv_bias"),
        ("config.istft_padding", "center", "istft_padding"),
        ("config.downsample_factor", 4, "downsample_factor"),
        ("ssl_feature_extractor.init_args.model_name", "hubert_base", "model_name"),
        ("wave_prenet.init_args.dim", 64, "dim"),
        ("local_quantizer.init_args.surprise", 1, "surprise"),
    ],
)
def test_what_would_compute_something_else_is_refused(
    tmp_path: Path, path: str, value: object, words: str
) -> None:
    data = document("tiny", 44100)
    *parents, last = path.split(".")
    node = data["model"]["init_args"]
    for name in parents:
        node = node[name]
    node[last] = value
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(CheckpointError, match=words):
        load_config(tmp_path)


def test_a_torn_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.yaml does not exist"):
        load_config(tmp_path)
    for text in ("model: [", "model: {}", "- 1"):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(CheckpointError, match=r"config\.yaml"):
            load_config(tmp_path)


def test_a_wrong_description_is_named(codec_bundle: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(codec_bundle(44100), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["model"]["sample_rate"] = 0
    del manifest["sha256"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="sample_rate"):
        Codec.load(folder, prepare="never")
