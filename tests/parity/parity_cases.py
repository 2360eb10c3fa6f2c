"""What both sides run: recipes, modes, options, noise and prompt audio, all from seeds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

FloatArray = npt.NDArray[np.float32]

# Largest deviation allowed, as a share of the reference tensor's peak.
TOLERANCE = 1e-4

# Seeds of checkpoints whose stop head says both "go on" and "stop" within 40 patches, and which
# do not magnify rounding errors too much (see `official`).
_CHECKPOINT_SEEDS = {
    "cond-add-out": 1,
    "cond-scale-out": 1,
    "no-rope": 7,
    "short-original": 7,
    "small-patch": 1,
}
_CHECKPOINT_SEED = 4

TEXT = "Now serving number forty two at counter seven, 你好世界."
PROMPT_TEXT = "The quick brown fox, 今天天气很好。"
DESIGN = "(a calm old man) "

# Recipes that take every check; the others are compared in zero-shot mode.
FULL_RECIPES = (
    "tiny",
    "mup",
    "short-original",
    "no-rope",
    "head-24",
    "other-depths",
    "mean-mode",
    "small-patch",
    "noise-block",
    "odd-rates",
)
# Recipes whose golden files hold all modes.
GOLDEN_ALL_MODES = ("tiny", "odd-rates")


def checkpoint_seed(recipe: str) -> int:
    """Seed to make a recipe's checkpoint with."""
    return _CHECKPOINT_SEEDS.get(recipe, _CHECKPOINT_SEED)


@dataclass(frozen=True)
class Mode:
    """One way to ask for speech.

    Attributes:
        name: For test ids and file names.
        text: What to say.
        reference: Whether there is a reference clip.
        prompt: Whether there is a prompt clip with its text.
    """

    name: str
    text: str = TEXT
    reference: bool = False
    prompt: bool = False

    @property
    def spoken(self) -> str:
        """Text whose tokens go into the prefix."""
        return PROMPT_TEXT + self.text if self.prompt else self.text


MODES = {
    mode.name: mode
    for mode in (
        Mode("zero-shot"),
        Mode("design", DESIGN + TEXT),
        Mode("reference", reference=True),
        Mode("continuation", prompt=True),
        Mode("reference-continuation", reference=True, prompt=True),
    )
}


@dataclass(frozen=True)
class Options:
    """How to speak; ``min_len`` 39 with ``max_len`` 40 gives exactly 40 patches."""

    steps: int = 10
    cfg: float = 2.0
    min_len: int = 39
    max_len: int = 40
    ratio: float = 6.0


class PositionNoise:
    """Noise in which a value depends on the seed and its position alone.

    The official package draws the decoder's noise blocks for the whole utterance at once, or per
    chunk when it streams; here each block has a sequence of its own, so both get the same values.

    Args:
        seed: Seed of all sequences.
        blocks: Noise blocks that a decoder pass runs through in turn.
        jitter: Share of a patch's values that is itself noise, to see what a deviation leads to.
    """

    def __init__(self, seed: int, blocks: int, jitter: float = 0.0) -> None:
        self._patch = np.random.Generator(np.random.PCG64([seed, 0]))
        self._jitter = (np.random.Generator(np.random.PCG64([seed, 2])), np.float32(jitter))
        self._blocks = [np.random.Generator(np.random.PCG64([seed, 1, i])) for i in range(blocks)]
        self._calls = 0

    def patch(self, shape: tuple[int, int]) -> FloatArray:
        """Noise [D, P] of the next patch."""
        values = self._patch.standard_normal(shape, np.float32)
        random, jitter = self._jitter
        return values * (1 + jitter * random.standard_normal(shape, np.float32))

    def decoder(self, shape: tuple[int, int, int]) -> FloatArray:
        """The next stretch of the next block's sequence."""
        block = self._blocks[self._calls % len(self._blocks)]
        self._calls += 1
        return block.standard_normal(shape, np.float32)


class Clips:
    """Prompt audio on disk: modulated harmonics with noise, no whole number of patches long.

    Args:
        folder: Takes the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reference(self, seed: int) -> Path:
        """1.1 s, 16 kHz, 16 bit."""
        return self._write(f"reference-{seed}", _signal([seed, 1], 17637, 16000), 16000, "PCM_16")

    def prompt(self, seed: int) -> Path:
        """0.9 s, 16 kHz, float."""
        return self._write(f"prompt-{seed}", _signal([seed, 2], 14411, 16000), 16000, "FLOAT")

    def stereo(self, seed: int) -> Path:
        """1 s, 44.1 kHz, two different channels, 16 bit: has to be mixed and resampled."""
        channels = [_signal([seed, 3 + side], 44321, 44100) for side in (0, 1)]
        return self._write(f"stereo-{seed}", np.stack(channels, axis=1), 44100, "PCM_16")

    def _write(self, name: str, samples: npt.NDArray[np.float64], rate: int, subtype: str) -> Path:
        path = self._folder / f"{name}.wav"
        if not path.exists():
            soundfile.write(path, samples, rate, subtype=subtype)
        return path


def _signal(seed: list[int], count: int, rate: int) -> npt.NDArray[np.float64]:
    random = np.random.Generator(np.random.PCG64(seed))
    time = np.arange(count) / rate
    pitch = random.uniform(90, 220)
    phase = 2 * np.pi * pitch * (time + 0.002 * np.sin(2 * np.pi * 5 * time))
    tone = sum(
        random.uniform(0.3, 1) / order * np.sin(order * phase + random.uniform(0, 2 * np.pi))
        for order in range(1, 16)
    )
    loudness = 0.55 + 0.45 * np.sin(2 * np.pi * random.uniform(2, 4) * time)
    samples = 0.15 * loudness * tone + 0.01 * random.standard_normal(count)
    return np.clip(samples, -0.95, 0.95)
