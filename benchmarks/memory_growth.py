"""Anonymous memory over many requests of mixed lengths. Prints a Markdown table.

    python benchmarks/memory_growth.py --bundle BUNDLE [--requests 220] [--patches 2]

Texts of 1 to 90 words, some of which are cut into chunks, a third of them with a reference of
0.3 to 4 s, no two alike. Each gets the KV cache that its length asks for and is closed after a
few patches: what is longer costs time and shows nothing new.
"""

from __future__ import annotations

import argparse
import random

import numpy as np

from boardvoice import Voice
from edge_runtime.memory.limits import ProcessMemory

_MIB = 1 << 20
_WORDS = ("counter", "ticket", "number", "please", "left", "battery", "good", "morning", "seven")


def main() -> None:
    """Speak and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--requests", type=int, default=220)
    parser.add_argument("--warm", type=int, default=20)
    parser.add_argument("--patches", type=int, default=2, help="most patches per request")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--profile")
    arguments = parser.parse_args()
    voice = Voice.load(arguments.bundle, threads=arguments.threads, profile=arguments.profile)
    chance = random.Random(0)
    found = []
    print("| request | RssAnon MiB | of which KV pooled and kept for voices |\n|---|---|---|")
    for request in range(1, arguments.requests + 1):
        speak(voice, chance, request, arguments.patches)
        found.append(ProcessMemory.read().anonymous)
        if request == 1 or request % 20 == 0:
            row = (f"{found[-1] / _MIB:.1f}", f"{voice.kv_bytes() / _MIB:.1f}")
            print(f"| {request} | {' | '.join(row)} |", flush=True)
    warm, later = found[arguments.warm - 1], found[arguments.warm :]
    print(
        f"\nfrom request {arguments.warm} to {arguments.requests}: {_mb(later[-1] - warm)} MB, "
        f"lowest {_mb(min(later) - warm)} MB, highest {_mb(max(later) - warm)} MB"
    )


def speak(voice: Voice, chance: random.Random, seed: int, most: int) -> None:
    """Speak one request of a random length."""
    text = " ".join(chance.choices(_WORDS, k=chance.randint(1, 90)))
    reference = None
    if chance.random() < 0.3:
        count = int(16000 * chance.uniform(0.3, 4.0))
        tone = np.sin(np.arange(count) * chance.uniform(0.02, 0.2)).astype(np.float32)
        reference = (0.3 * tone, 16000)
    patches = chance.randint(1, most)
    with voice.stream(text, reference=reference, seed=seed) as stream:
        for index, _ in enumerate(stream, 1):
            if index == patches:
                break


def _mb(count: int) -> str:
    return f"{count / 1e6:+.1f}"


if __name__ == "__main__":
    main()
