"""Sizes of one MiniCPM-4 stack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransformerSpec:
    """What the graph builder needs of one stack.

    Attributes:
        hidden: Width of the residual stream.
        ffn: Width of the MLP.
        num_heads: Query heads.
        num_kv_heads: Key and value heads; each serves ``num_heads / num_kv_heads`` query heads.
        head_size: Dimensions per head.
        num_layers: Blocks.
        eps: Added to the mean square before the root.
        residual_scale: muP's factor on what a sub-layer adds; folded into its weights.
        rope: Whether queries and keys are rotated.
    """

    hidden: int
    ffn: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    num_layers: int
    eps: float
    residual_scale: float
    rope: bool
