"""Named configs to make checkpoints from: the published sizes, a tiny one, and its variants."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

from export.synthetic.base_documents import full_document, growing_factors, tiny_document
from export.voxcpm2.config import VoxCpm2Config


@dataclass(frozen=True)
class Recipe:
    """One config as data: a base and what differs from it.

    Attributes:
        name: What ``--variant`` takes.
        covers: The behaviour this recipe is there to exercise.
        size: Base that the changes apply to.
        changes: Pairs of a dotted config key and its value; ``REMOVED`` drops the key.
    """

    name: str
    covers: str
    size: Literal["tiny", "full"] = "tiny"
    changes: tuple[tuple[str, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        """Fresh `config.json` content."""
        base = full_document() if self.size == "full" else tiny_document()
        for key, value in self.changes:
            *path, last = key.split(".")
            node = base
            for part in path:
                node = node[part]
            if value is REMOVED:
                del node[last]
            else:
                node[last] = copy.deepcopy(value)
        return base

    def config(self) -> VoxCpm2Config:
        """The same as the exporter's model."""
        return VoxCpm2Config.model_validate(self.document())


REMOVED = object()


def _head(size: int, *, kv_heads: int = 2) -> tuple[tuple[str, Any], ...]:
    """Changes that give every stack this head size; the factor lists follow it."""
    scaling = "lm_config.rope_scaling"
    return (
        ("lm_config.kv_channels", size),
        ("encoder_config.kv_channels", size),
        ("dit_config.kv_channels", size),
        ("lm_config.num_key_value_heads", kv_heads),
        (f"{scaling}.long_factor", growing_factors(size // 2, 1.0, 9.0)),
        (f"{scaling}.short_factor", growing_factors(size // 2, 1.0, 3.0)),
    )


def _long(original: int, limit: int) -> tuple[tuple[str, Any], ...]:
    """Changes that put the long factors in use: ``limit`` positions, ``original`` trained."""
    return (
        ("lm_config.rope_scaling.original_max_position_embeddings", original),
        ("lm_config.max_position_embeddings", limit),
        ("max_length", limit),
    )


def _vae(**values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((f"audio_vae_config.{key}", value) for key, value in values.items())


_ALL = (
    Recipe("full", "the published sizes, 2.3 billion parameters", "full"),
    Recipe("tiny", "the published layout in small: short factors in use, no mup"),
    Recipe(
        "residual-rope",
        "rope in the residual LM too",
        changes=(("residual_lm_no_rope", False),),
    ),
    Recipe(
        "mup",
        "mup: scaled embeddings and residuals, with long factors in use",
        changes=(("lm_config.use_mup", True), *_long(128, 512)),
    ),
    Recipe("long-rope", "long factors in use", changes=_long(256, 512)),
    Recipe(
        "short-original",
        "32 trained positions, runs go far past them; rope in every stack",
        changes=(("residual_lm_no_rope", False), *_long(32, 512)),
    ),
    Recipe(
        "one-factor",
        "factor lists of one value, spread over all pairs",
        changes=(
            ("lm_config.rope_scaling.long_factor", [4.0]),
            ("lm_config.rope_scaling.short_factor", [1.5]),
            *_long(64, 512),
        ),
    ),
    Recipe(
        "no-rope",
        "no positions anywhere, so each stack has a head size of its own (16, 8, 32)",
        changes=(
            ("lm_config.no_rope", True),
            ("encoder_config.kv_channels", 8),
            ("dit_config.kv_channels", 32),
        ),
    ),
    Recipe(
        "no-kv-channels",
        "kv_channels absent: hidden size over heads",
        changes=(
            ("lm_config.kv_channels", REMOVED),
            ("encoder_config.kv_channels", REMOVED),
            ("encoder_config.hidden_dim", 32),
            ("encoder_config.num_heads", 2),
            ("dit_config.kv_channels", REMOVED),
            ("dit_config.num_heads", 4),
        ),
    ),
    Recipe(
        "head-8",
        "head size 8, as many KV heads as heads",
        changes=(*_head(8, kv_heads=4), ("dit_config.num_heads", 4)),
    ),
    Recipe("head-24", "head size 24", changes=_head(24)),
    Recipe("head-32", "head size 32, one KV head", changes=_head(32, kv_heads=1)),
    Recipe(
        "one-layer",
        "one layer in every stack",
        changes=(
            ("lm_config.num_hidden_layers", 1),
            ("residual_lm_num_layers", 1),
            ("encoder_config.num_layers", 1),
            ("dit_config.num_layers", 1),
        ),
    ),
    Recipe(
        "other-depths",
        "four different layer counts (5, 4, 1, 3), other FSQ scale",
        changes=(
            ("lm_config.num_hidden_layers", 5),
            ("residual_lm_num_layers", 4),
            ("encoder_config.num_layers", 1),
            ("dit_config.num_layers", 3),
            ("scalar_quantization_scale", 4),
        ),
    ),
    Recipe(
        "mean-mode",
        "dit_mean_mode true: the flow sees its step width",
        changes=(("dit_config.dit_mean_mode", True),),
    ),
    Recipe(
        "small-patch",
        "patch_size 2, feat_dim 8",
        changes=(("patch_size", 2), ("feat_dim", 8), *_vae(latent_dim=8)),
    ),
    Recipe("vae-plain", "no sample-rate conditioning", changes=_vae(sr_bin_boundaries=None)),
    Recipe(
        "vae-dense",
        "depthwise false, decoder down to one channel",
        changes=_vae(depthwise=False, decoder_dim=64),
    ),
    Recipe("cond-init", "cond_type scale_bias_init", changes=_vae(cond_type="scale_bias_init")),
    Recipe("cond-add", "cond_type add", changes=_vae(cond_type="add")),
    Recipe(
        "cond-add-out",
        "cond_type add with an output layer, one boundary",
        changes=_vae(cond_type="add", cond_out_layer=True, sr_bin_boundaries=[30000]),
    ),
    Recipe(
        "cond-scale-out",
        "cond_type scale_bias with an output layer",
        changes=_vae(cond_out_layer=True),
    ),
    Recipe(
        "cond-concat",
        "cond_type concat with its output layer",
        changes=_vae(cond_type="concat", cond_out_layer=True),
    ),
    Recipe(
        "noise-block",
        "use_noise_block true (the decoder draws noise)",
        changes=_vae(use_noise_block=True),
    ),
    Recipe(
        "odd-rates",
        "rates with strides 3 and 5, 24000 Hz in and out",
        changes=_vae(
            encoder_rates=[2, 3, 4, 5],
            decoder_rates=[5, 4, 3, 2],
            sample_rate=24000,
            out_sample_rate=24000,
        ),
    ),
    Recipe(
        "stride-one",
        "strides of 1, no sample-rate conditioning, depthwise false",
        changes=_vae(
            encoder_rates=[1, 4, 8],
            decoder_rates=[8, 1, 7],
            out_sample_rate=28000,
            sr_bin_boundaries=None,
            depthwise=False,
        ),
    ),
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
