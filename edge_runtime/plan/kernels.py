"""What share of a large product's speed a product of few rows reaches, by kernel.

Measured with ONNX Runtime 1.32 on 2 threads of an AMD EPYC (Zen 5, AVX-512 VNNI); see docs/plan.md
for the tables and the scripts that print them. They are taken for every CPU, which nobody has
checked on a board.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

# f32; int8 with activations quantized per call; int8 and int4 in blocks.
Kernel = Literal["f32", "int8", "int8-blocks", "int4-blocks"]

# `benchmarks/weights_from_memory.py`, cached weights: speed at so many rows over that at 256.
ROW_SHARES: dict[Kernel, tuple[tuple[int, float], ...]] = {
    "f32": ((1, 0.10), (5, 0.28), (11, 0.43), (22, 0.59), (36, 0.68), (64, 0.80), (256, 1.0)),
    "int8": ((1, 0.07), (11, 0.50), (22, 0.71), (64, 0.86), (256, 1.0)),
    "int8-blocks": ((1, 0.26), (5, 0.87), (22, 1.0)),
    "int4-blocks": ((1, 0.38), (5, 0.94), (11, 1.0)),
}
# Speed of a large product over that of int8, where a board has no figure of its own.
OF_INT8: dict[Kernel, float] = {"int8": 1.0, "int8-blocks": 0.41, "int4-blocks": 0.30}
# Share of the hardware's peak that a large product reaches.
OF_PEAK: dict[Kernel, float] = {
    "f32": 0.9, "int8": 0.75, "int8-blocks": 0.75, "int4-blocks": 0.75
}  # fmt: skip
# Convolutions and products of activations, with what surrounds them, over large f32 products.
CONVOLUTIONS = 0.29
# Attention of many rows over a KV cache, over large f32 products.
ATTENTION = 0.7
# Norms, activations, quantizing and calls, over products alone.
OTHER = 1.2


def kernel_of(format_: str) -> Kernel:
    """Kernel of a weight format such as ``int8-128``."""
    if format_ in ("f32", "int8"):
        return "f32" if format_ == "f32" else "int8"
    return "int4-blocks" if format_.startswith("int4") else "int8-blocks"


def row_share(kernel: Kernel, rows: int) -> float:
    """Share of a large product's speed, in between by straight lines."""
    known = ROW_SHARES[kernel]
    index = bisect_left([each for each, _ in known], rows)
    if index == 0:
        return known[0][1]
    if index == len(known):
        return known[-1][1]
    (low, below), (high, above) = known[index - 1], known[index]
    return below + (above - below) * (rows - low) / (high - low)


def weight_bytes(format_: str, inputs: int, outputs: int) -> float:
    """Bytes of a weight with its scales."""
    if format_ == "f32":
        return 4.0 * inputs * outputs
    if format_ == "f16":
        return 2.0 * inputs * outputs
    bits, _, block = format_.removeprefix("int").partition("-")
    blocks = -(-inputs // int(block)) if block else 1
    # int4 has a zero point of 4 bits per block, in whole bytes per output; int8-32 one of 8 bits.
    points = -(-blocks * int(bits) // 8) if bits == "4" or format_ == "int8-32" else 0
    return inputs * outputs * int(bits) / 8 + outputs * (4.0 * blocks + points)
