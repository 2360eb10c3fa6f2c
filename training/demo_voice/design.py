"""The demo voice's ``config.json``."""

from __future__ import annotations

from typing import Any

from export.voxcpm2.config import VoxCpm2Config
from training.demo_voice.wave_decoder import DecoderSizes

HEAD = 64


def config_document(vocabulary: int, decoder: DecoderSizes) -> dict[str, Any]:
    """The official config in small.

    Args:
        vocabulary: Entries of the tokenizer.
        decoder: Sizes of the AudioVAE's decoder.
    """
    factors = [1.0] * (HEAD // 2)
    return {
        "architecture": "voxcpm2",
        "lm_config": {
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_size": 256,
            "intermediate_size": 768,
            "max_position_embeddings": 512,
            "num_attention_heads": 4,
            "num_hidden_layers": 6,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-05,
            "rope_theta": 10000,
            "kv_channels": HEAD,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": factors,
                "short_factor": factors,
                "original_max_position_embeddings": 512,
            },
            "vocab_size": vocabulary,
            "use_mup": False,
            "scale_emb": 12,
            "dim_model_base": 256,
            "scale_depth": 1.4,
        },
        "patch_size": 4,
        "feat_dim": decoder.latent,
        "residual_lm_num_layers": 2,
        "residual_lm_no_rope": False,
        "scalar_quantization_latent_dim": 128,
        "scalar_quantization_scale": 9,
        "encoder_config": {
            "hidden_dim": 192,
            "ffn_dim": 384,
            "num_heads": 4,
            "num_layers": 2,
            "kv_channels": HEAD,
        },
        "dit_config": {
            "hidden_dim": 256,
            "ffn_dim": 512,
            "num_heads": 4,
            "num_layers": 4,
            "kv_channels": HEAD,
            "dit_mean_mode": False,
            "cfm_config": {
                "sigma_min": 1e-06,
                "solver": "euler",
                "t_scheduler": "log-norm",
                "training_cfg_rate": 0.1,
                "inference_cfg_rate": 2.0,
                "reg_loss_type": "l1",
            },
        },
        "audio_vae_config": {
            "encoder_dim": 16,
            "encoder_rates": [2, 5, 8, 8],
            "latent_dim": decoder.latent,
            "decoder_dim": decoder.width,
            "decoder_rates": list(decoder.rates),
            "depthwise": True,
            "sample_rate": 16000,
            "out_sample_rate": 16000,
            "use_noise_block": False,
            "sr_bin_boundaries": None,
            "cond_type": "scale_bias",
            "cond_dim": 128,
            "cond_out_layer": False,
        },
        "max_length": 512,
        "device": "cpu",
        "dtype": "float32",
    }


def config(vocabulary: int, decoder: DecoderSizes) -> VoxCpm2Config:
    """The same as the exporter's model."""
    return VoxCpm2Config.model_validate(config_document(vocabulary, decoder))
