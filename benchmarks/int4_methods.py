"""Ways to choose 4-bit codes, compared on one matrix product. Prints a Markdown table.

    python benchmarks/int4_methods.py [--block 32]

dB of the product's output against f32, on activations that no method has seen, for weights and
activations as real models have them (heavy tails, channels that stand out, correlation) and for
plain Gaussian ones. Seconds are for one million weights on one thread.

half-quadratic: Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models"
(2023); data-free. Hessian: Frantar et al., "GPTQ", arXiv:2210.17323; needs activations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

from export.weights.int4 import block_int4

OUTPUTS, INPUTS = 512, 1024
CALIBRATION, HELD_OUT = 8192, 512
TOP = 15

Array = np.ndarray


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--block", type=int, default=32)
    block = parser.parse_args().block
    seconds: dict[str, list[float]] = {}
    rows = []
    for weights, weight in _weights():
        for activations, value in _activations():
            seen, unseen = value[:CALIBRATION], value[CALIBRATION:]
            exact = unseen @ weight.T
            cells = []
            for name, method in _methods(seen).items():
                start = time.perf_counter()
                decoded = method(weight, block)
                seconds.setdefault(name, []).append(time.perf_counter() - start)
                cells.append(f"{_snr(exact, unseen @ decoded.T):.1f}")
            rows.append((f"{weights}; {activations}", cells))
    print(f"| block {block}; weights; activations | " + " | ".join(seconds) + " |")
    print("|---|" + "---|" * len(seconds))
    for label, cells in rows:
        print(f"| {label} | " + " | ".join(cells) + " |")
    per_million = (np.median(spent) * 1e6 / (OUTPUTS * INPUTS) for spent in seconds.values())
    print("| seconds | " + " | ".join(f"{each:.2f}" for each in per_million) + " |")


def _methods(seen: Array) -> dict[str, Callable[[Array, int], Array]]:
    return {
        "rounded, symmetric": _rounded,
        "searched, symmetric": lambda w, b: _ours(w, b, symmetric=True),
        "rounded": _rounded_with_zero,
        "searched": lambda w, b: _ours(w, b, symmetric=False),
        "half-quadratic, whole zeros": lambda w, b: _half_quadratic(w, b, whole=True),
        "half-quadratic, real zeros": lambda w, b: _half_quadratic(w, b, whole=False),
        "Hessian, searched scales": lambda w, b: _hessian(w, b, seen),
    }


def _weights() -> Iterator[tuple[str, Array]]:
    random = np.random.default_rng(0)
    gauss = random.standard_normal((OUTPUTS, INPUTS)) / np.sqrt(INPUTS)
    yield "Gaussian", gauss.astype(np.float32)
    tails = random.standard_t(4, (OUTPUTS, INPUTS)) / np.sqrt(2 * INPUTS)
    yield "heavy tails (t, 4 degrees)", tails.astype(np.float32)
    spread = np.exp(0.7 * random.standard_normal(INPUTS))
    yield "Gaussian, log-normal columns", (gauss * spread).astype(np.float32)


def _activations() -> Iterator[tuple[str, Array]]:
    random = np.random.default_rng(1)
    count, rank = CALIBRATION + HELD_OUT, INPUTS // 8
    white = random.standard_normal((count, INPUTS))
    yield "white", white.astype(np.float32)
    mixing = random.standard_normal((rank, INPUTS)) / np.sqrt(rank)
    mixed = 0.5 * white + 1.5 * random.standard_normal((count, rank)) @ mixing
    yield "correlated", mixed.astype(np.float32)
    sizes = np.exp(0.8 * random.standard_normal(INPUTS))
    sizes[random.choice(INPUTS, 8, replace=False)] *= 20
    yield "correlated, with outlier channels", (mixed * sizes).astype(np.float32)


def _ours(weight: Array, block: int, *, symmetric: bool) -> Array:
    found = block_int4(weight, block, symmetric=symmetric)
    zeros: Array = np.full((*found.scales.shape, 1), 8)
    if found.zeros is not None:
        zeros = _nibbles(found.zeros)[:, : found.scales.shape[1], None]
    values = (_nibbles(found.packed).astype(np.float32) - zeros) * found.scales[..., None]
    return values.reshape(weight.shape).astype(np.float32)


def _nibbles(packed: Array) -> Array:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def _rounded(weight: Array, block: int) -> Array:
    blocks = weight.reshape(-1, block)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    scale = largest / -8
    return (np.clip(np.rint(blocks / scale), -8, 7) * scale).reshape(weight.shape)


def _rounded_with_zero(weight: Array, block: int) -> Array:
    blocks = weight.reshape(-1, block)
    scale, zero = _range(blocks)
    zero = np.rint(zero)
    codes = np.clip(np.rint(blocks / scale + zero), 0, TOP)
    return ((codes - zero) * scale).reshape(weight.shape)


def _range(blocks: Array) -> tuple[Array, Array]:
    low, high = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    scale = (high - low) / TOP
    return scale, -low / scale


def _half_quadratic(weight: Array, block: int, *, whole: bool) -> Array:
    """Zero points for least error in the norm 0.7, by splitting off what stands out."""
    blocks = weight.reshape(-1, block)
    scale, zero = _range(blocks)
    best, least, beta = blocks, np.inf, 10.0
    for _ in range(20):
        used = np.rint(zero) if whole else zero
        codes = np.clip(np.rint(blocks / scale + used), 0, TOP)
        decoded = (codes - used) * scale
        error = blocks - decoded
        if np.abs(error).mean() >= least:
            break
        best, least = decoded, np.abs(error).mean()
        size = np.abs(error)
        shrunk = np.sign(error) * np.maximum(size - (size + 1e-12) ** (0.7 - 1) / beta, 0)
        zero = (codes - (blocks - shrunk) / scale).mean(axis=1, keepdims=True)
        beta *= 1.01
    return best.reshape(weight.shape).astype(np.float32)


def _hessian(weight: Array, block: int, seen: Array) -> Array:
    """Column by column, each column's error made up for by those that follow."""
    hessian = seen.T.astype(np.float64) @ seen
    hessian[np.diag_indices(INPUTS)] += 0.01 * np.diag(hessian).mean()
    factor = np.linalg.cholesky(np.linalg.inv(hessian)).T.astype(np.float32)
    rest, decoded = weight.copy(), np.empty_like(weight)
    for start in range(0, INPUTS, block):
        stop = start + block
        found = block_int4(rest[:, start:stop], block)
        scale = found.scales[:, 0]
        assert found.zeros is not None
        zero = (found.zeros[:, 0] & 15).astype(np.float32)
        errors = np.empty((OUTPUTS, block), np.float32)
        for column in range(start, stop):
            code = np.clip(np.rint(rest[:, column] / scale + zero), 0, TOP)
            decoded[:, column] = (code - zero) * scale
            error = (rest[:, column] - decoded[:, column]) / factor[column, column]
            errors[:, column - start] = error
            rest[:, column:stop] -= error[:, None] * factor[column, column:stop]
        rest[:, stop:] -= errors @ factor[start:stop, stop:]
    return decoded


def _snr(exact: Array, found: Array) -> float:
    wanted, error = exact.astype(np.float64), found.astype(np.float64) - exact
    return float(10 * np.log10(np.square(wanted).sum() / np.square(error).sum()))


if __name__ == "__main__":
    main()
