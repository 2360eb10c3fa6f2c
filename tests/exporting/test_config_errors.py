"""A wrong `config.json` is refused with the file's and the key's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.errors import CheckpointError, UnsupportedError
from export.synthetic import RECIPES
from export.voxcpm2.config import VoxCpm2Config, load_config

MISSING = object()


def write(folder: Path, **changes: Any) -> Path:
    """The tiny config with dotted keys (``__`` for a dot) replaced."""
    document = RECIPES["tiny"].document()
    for key, value in changes.items():
        *path, last = key.split("__")
        node = document
        for part in path:
            node = node[part]
        if value is MISSING:
            del node[last]
        else:
            node[last] = value
    (folder / "config.json").write_text(json.dumps(document), "utf-8")
    return folder


def refusal(folder: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load_config(folder)
    assert str(folder / "config.json") in caught.value.message
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    "key",
    [
        "lm_config", "encoder_config", "dit_config", "lm_config__hidden_size",
        "lm_config__vocab_size", "lm_config__rope_scaling", "lm_config__rope_theta",
        "lm_config__rope_scaling__long_factor", "lm_config__num_key_value_heads",
        "dit_config__cfm_config",
    ],
)  # fmt: skip
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    error = refusal(write(tmp_path, **{key: MISSING}))
    assert f"{key.replace('__', '.')}: Field required" in error.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lm_config", 3), ("lm_config", None), ("encoder_config", []),
        ("lm_config__hidden_size", "wide"), ("lm_config__hidden_size", 0),
        ("lm_config__hidden_size", 64.5), ("lm_config__hidden_size", None),
        ("lm_config__num_hidden_layers", -1), ("lm_config__rms_norm_eps", 0),
        ("lm_config__rms_norm_eps", float("nan")), ("lm_config__scale_emb", float("inf")),
        ("lm_config__rope_theta", "x"), ("lm_config__use_mup", "perhaps"),
        ("lm_config__kv_channels", 0),
        ("lm_config__rope_scaling__type", "yarn"),
        ("lm_config__rope_scaling__long_factor", "many"),
        ("lm_config__rope_scaling__long_factor", [1.0] * 7 + [0.0]),
        ("lm_config__rope_scaling__short_factor", [1.0] * 7 + [float("nan")]),
        ("lm_config__rope_scaling__original_max_position_embeddings", 1),
        ("patch_size", 0), ("feat_dim", "x"), ("max_length", 0), ("residual_lm_num_layers", 0),
        ("dit_config__cfm_config__solver", "heun"),
        ("audio_vae_config__encoder_rates", []), ("audio_vae_config__encoder_rates", "2,5"),
        ("audio_vae_config__sample_rate", 0),
        ("audio_vae_config__cond_type", "film"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_or_range_is_named(
    tmp_path: Path, key: str, value: object
) -> None:
    assert key.replace("__", ".") in refusal(write(tmp_path, **{key: value})).message


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"lm_config__num_attention_heads": 3}, ["lm_config", "3 heads", "2 KV heads"]),
        ({"encoder_config__num_heads": 5}, ["encoder_config", "5 heads"]),
        ({"dit_config__num_heads": 7}, ["dit_config", "7 heads"]),
        (
            {"lm_config__rope_scaling__long_factor": [1.0] * 7},
            ["lm_config.rope_scaling.long_factor has 7 factors", "8"],
        ),
        (
            {"dit_config__kv_channels": 32},
            ["rope_scaling.long_factor has 8 factors", "dit_config needs 16"],
        ),
        ({"feat_dim": 24}, ["feat_dim 24", "audio_vae_config.latent_dim 16"]),
        ({"audio_vae_config__latent_dim": 8}, ["feat_dim 16", "audio_vae_config.latent_dim 8"]),
        ({"audio_vae_config__latent_dim": None}, ["feat_dim 16", "128"]),
        (
            {"audio_vae_config__cond_type": "concat"},
            ["audio_vae_config", 'cond_type "concat"', "cond_out_layer"],
        ),
        ({"audio_vae_config__decoder_dim": 100}, ["decoder_dim 100", "6 times"]),
        ({"audio_vae_config__encoder_rates": [2, 0]}, ["encoder_rates", "1 or more"]),
        ({"dit_config__hidden_dim": 63}, ["dit_config.hidden_dim", "even"]),
        (
            {"encoder_config__kv_channels": MISSING, "encoder_config__hidden_dim": 2},
            ["encoder_config", "hidden size 2", "4 heads"],
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_keys_that_contradict_each_other_are_named(
    tmp_path: Path, changes: dict[str, Any], named: list[str]
) -> None:
    message = refusal(write(tmp_path, **changes)).message
    assert all(part in message for part in named), message


@pytest.mark.parametrize("architecture", ["voxcpm", "VoxCPM", "llama", MISSING, None, 3])
def test_another_architecture_is_refused_by_name(tmp_path: Path, architecture: object) -> None:
    error = refusal(write(tmp_path, architecture=architecture))
    assert isinstance(error, UnsupportedError)
    shown = str(architecture).lower()
    named = "no key 'architecture'" if architecture is MISSING else f"architecture {shown!r}"
    assert named in error.message
    assert "voxcpm2" in error.remedy


def test_quantized_checkpoints_are_refused_by_name(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, quantization_config={"bits": 4}))
    assert isinstance(error, UnsupportedError)
    assert "quantization_config" in error.message


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"null", b'"x"', b'{"a": 1}']
)
def test_a_torn_config_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(data)
    refusal(tmp_path)


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    refusal(tmp_path)
    refusal(tmp_path / "none")
    (tmp_path / "config.json").mkdir()
    refusal(tmp_path)


def test_unknown_keys_are_ignored_as_officially(tmp_path: Path) -> None:
    document = write(tmp_path, some_new_key=1, lm_config__torch_dtype="bfloat16")
    assert load_config(document) == VoxCpm2Config.model_validate(RECIPES["tiny"].document())


def test_the_architecture_may_be_in_capitals(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, architecture="VoxCPM2")).architecture == "voxcpm2"


@pytest.mark.parametrize("value", [None, MISSING])
def test_no_audio_vae_config_means_the_default_one(tmp_path: Path, value: object) -> None:
    config = load_config(write(tmp_path, audio_vae_config=value, feat_dim=64))
    assert config.audio_vae_config.decoder_rates == (8, 6, 5, 2, 2, 2)
    assert config.audio_vae_config.latent_dim == 64
