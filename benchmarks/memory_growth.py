"""Anonymous memory over many requests of mixed lengths. Prints a Markdown table.

    python benchmarks/memory_growth.py --bundle BUNDLE [--requests 220] [--max-len 4]
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
    parser.add_argument("--max-len", type=int, default=4)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--profile")
    arguments = parser.parse_args()
    voice = Voice.load(
        arguments.bundle, threads=arguments.threads, profile=arguments.profile
    )
    chance = random.Random(0)
    tone = np.sin(np.arange(16000 * 4) * 0.05).astype(np.float32) * 0.3
    warm = highest = 0
    print("| request | RssAnon MiB |\n|---|---|")
    for request in range(1, arguments.requests + 1):
        text = " ".join(chance.choices(_WORDS, k=chance.randint(1, 90)))
        seconds = chance.uniform(0.3, 4.0)
        reference = (tone[: int(16000 * seconds)], 16000) if chance.random() < 0.3 else None
        voice.say(
            text, reference=reference, seed=request, max_len=chance.randint(1, arguments.max_len),
            retry_badcase=False,
        )  # fmt: skip
        anonymous = ProcessMemory.read().anonymous
        if request == arguments.warm:
            warm = anonymous
        if request > arguments.warm:
            highest = max(highest, anonymous)
        if request == 1 or request % 20 == 0:
            print(f"| {request} | {anonymous / _MIB:.1f} |", flush=True)
    last = ProcessMemory.read().anonymous
    print(
        f"\ngrowth from request {arguments.warm} to {arguments.requests}: "
        f"{(last - warm) / _MIB:.1f} MiB, highest {(highest - warm) / _MIB:.1f} MiB"
    )


if __name__ == "__main__":
    main()
