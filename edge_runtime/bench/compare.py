"""Two benchmark results side by side: ratios, and which differences are beyond noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from edge_runtime.bench.results import BenchResult

# Runs of one program on a quiet machine differ by a few percent.
TOLERANCE = 0.05
Verdict = Literal["slower", "faster", "larger", "smaller", "same"]


@dataclass(frozen=True)
class Comparison:
    """One figure, now and before. Less is better.

    Attributes:
        name: What it is.
        now: Its median now.
        before: Its median before.
        verdict: Whether every run now is beyond every run before by more than the tolerance.
    """

    name: str
    now: float
    before: float
    verdict: Verdict

    @property
    def ratio(self) -> float:
        """Now over before."""
        return self.now / self.before if self.before else float("nan")

    @property
    def regression(self) -> bool:
        """Whether it is worse beyond noise."""
        return self.verdict in ("slower", "larger")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "now": self.now,
            "before": self.before,
            "ratio": round(self.ratio, 4) if self.before else None,
            "verdict": self.verdict,
        }


def compare(now: BenchResult, before: BenchResult) -> list[Comparison]:
    """Compare every figure that both have."""
    old = {name: values for name, values, _ in _figures(before)}
    return [
        _compared(name, values, old[name], size=size)
        for name, values, size in _figures(now)
        if name in old
    ]


def differences(now: BenchResult, before: BenchResult) -> dict[str, tuple[Any, Any]]:
    """What differs between the two besides figures: machine, versions, settings."""
    found = {}
    for part in ("machine", "setup"):
        new, old = (getattr(each, part).model_dump() for each in (now, before))
        for key, value in new.items():
            if value != old[key]:
                found[f"{part}.{key}"] = (value, old[key])
    return found


def _compared(
    name: str, now: tuple[float, ...], before: tuple[float, ...], *, size: bool
) -> Comparison:
    verdict: Verdict = "same"
    if min(now) > max(before) * (1 + TOLERANCE):
        verdict = "larger" if size else "slower"
    elif max(now) * (1 + TOLERANCE) < min(before):
        verdict = "smaller" if size else "faster"
    return Comparison(name, _middle(now), _middle(before), verdict)


def _figures(result: BenchResult) -> Iterator[tuple[str, tuple[float, ...], bool]]:
    """Name, the median of every run, and whether it is a size."""
    yield "patch ms", result.patch_ms.runs, False
    yield "CPU-s per patch", result.cpu_s_per_patch.runs, False
    yield "first audio ms", result.first_audio_ms.runs, False
    yield "RTF", result.rtf.runs, False
    for name, component in result.components.items():
        yield f"{name} ms", component.ms.runs, False
    if result.cold is not None:
        yield "cold: start to audio ms", (result.cold.start_to_audio_ms,), False
    yield "peak RssAnon MB", (result.peak_rss_anon_mb,), True
    yield "KV MB", (result.kv_mb,), True


def _middle(values: tuple[float, ...]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
