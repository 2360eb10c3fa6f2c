"""The two `config.json` documents that recipes start from."""

from __future__ import annotations

from typing import Any


def growing_factors(pairs: int, first: float, last: float) -> list[float]:
    """Factors that grow with the square of the pair's index, as trained ones roughly do."""
    span = max(pairs - 1, 1) ** 2
    return [round(first + (last - first) * index**2 / span, 6) for index in range(pairs)]


def full_document() -> dict[str, Any]:
    """`config.json` of the published model's sizes."""
    return {
        "architecture": "voxcpm2",
        "lm_config": {
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "max_position_embeddings": 32768,
            "num_attention_heads": 16,
            "num_hidden_layers": 28,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-05,
            "rope_theta": 10000,
            "kv_channels": 128,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": growing_factors(64, 0.998, 57.0),
                "short_factor": growing_factors(64, 0.998, 57.0),
                "original_max_position_embeddings": 32768,
            },
            "vocab_size": 73448,
            "use_mup": False,
            "scale_emb": 12,
            "dim_model_base": 256,
            "scale_depth": 1.4,
        },
        "patch_size": 4,
        "feat_dim": 64,
        "residual_lm_num_layers": 8,
        "residual_lm_no_rope": True,
        "scalar_quantization_latent_dim": 512,
        "scalar_quantization_scale": 9,
        "encoder_config": {
            "hidden_dim": 1024,
            "ffn_dim": 4096,
            "num_heads": 16,
            "num_layers": 12,
            "kv_channels": 128,
        },
        "dit_config": {
            "hidden_dim": 1024,
            "ffn_dim": 4096,
            "num_heads": 16,
            "num_layers": 12,
            "kv_channels": 128,
            "dit_mean_mode": False,
            "cfm_config": _cfm(),
        },
        "audio_vae_config": {
            "encoder_dim": 128,
            "encoder_rates": [2, 5, 8, 8],
            "latent_dim": 64,
            "decoder_dim": 2048,
            "decoder_rates": [8, 6, 5, 2, 2, 2],
            "depthwise": True,
            "sample_rate": 16000,
            "out_sample_rate": 48000,
            "use_noise_block": False,
            "sr_bin_boundaries": [20000, 30000, 40000],
            "cond_type": "scale_bias",
            "cond_dim": 128,
            "cond_out_layer": False,
        },
        "max_length": 8192,
        "device": "cuda",
        "dtype": "bfloat16",
    }


def tiny_document() -> dict[str, Any]:
    """`config.json` of the same layout, small enough for tests on two cores."""
    return {
        "architecture": "voxcpm2",
        "lm_config": {
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "max_position_embeddings": 512,
            "num_attention_heads": 4,
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-05,
            "rope_theta": 10000,
            "kv_channels": 16,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": growing_factors(8, 1.0, 9.0),
                "short_factor": growing_factors(8, 1.0, 3.0),
                "original_max_position_embeddings": 512,
            },
            "vocab_size": 640,
            "use_mup": False,
            "scale_emb": 12,
            "dim_model_base": 16,
            "scale_depth": 1.4,
        },
        "patch_size": 4,
        "feat_dim": 16,
        "residual_lm_num_layers": 2,
        "residual_lm_no_rope": True,
        "scalar_quantization_latent_dim": 24,
        "scalar_quantization_scale": 9,
        "encoder_config": {
            "hidden_dim": 48,
            "ffn_dim": 96,
            "num_heads": 4,
            "num_layers": 2,
            "kv_channels": 16,
        },
        "dit_config": {
            "hidden_dim": 64,
            "ffn_dim": 128,
            "num_heads": 6,
            "num_layers": 2,
            "kv_channels": 16,
            "dit_mean_mode": False,
            "cfm_config": _cfm(),
        },
        "audio_vae_config": {
            "encoder_dim": 8,
            "encoder_rates": [2, 5, 8, 8],
            "latent_dim": 16,
            "decoder_dim": 128,
            "decoder_rates": [8, 6, 5, 2, 2, 2],
            "depthwise": True,
            "sample_rate": 16000,
            "out_sample_rate": 48000,
            "use_noise_block": False,
            "sr_bin_boundaries": [20000, 30000, 40000],
            "cond_type": "scale_bias",
            "cond_dim": 12,
            "cond_out_layer": False,
        },
        "max_length": 512,
        # The official package computes in this dtype; float32 makes its output a reference.
        "device": "cpu",
        "dtype": "float32",
    }


def _cfm() -> dict[str, Any]:
    return {
        "sigma_min": 1e-06,
        "solver": "euler",
        "t_scheduler": "log-norm",
        "inference_cfg_rate": 2.0,
    }
