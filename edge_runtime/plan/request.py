"""What a plan is asked for, and what a family says would run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edge_runtime.errors import UsageError
from edge_runtime.presets import PRESETS

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PlanRequest:
    """The speech that is planned.

    Attributes:
        text_rows: KV rows of the text and its control tokens.
        reference_s: Seconds of a reference that is heard for the first time; 0 for none.
        patches: Patches spoken.
        preset: ``quality``, ``balanced`` or ``fast``.
        steps: Euler steps; None takes the preset's.
        cfg: Guidance; at 1 the unguided half is not computed.
        threads: Takes the place of the profile's.
        memory_bytes: Memory of the board; None takes what the profile says, if it does.
    """

    # What "Now serving number forty two at counter seven." takes.
    text_rows: int = 36
    reference_s: float = 0.0
    patches: int = 25
    preset: str = "quality"
    steps: int | None = None
    cfg: float = 2.0
    threads: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        checks = (
            ("text rows", self.text_rows, self.text_rows >= 1, "1 or more"),
            ("reference", self.reference_s, 0 <= self.reference_s <= 3600, "0 to 3600 seconds"),
            ("patches", self.patches, self.patches >= 1, "1 or more"),
            ("preset", self.preset, self.preset in PRESETS, ", ".join(PRESETS)),
            ("steps", self.steps, self.steps is None or 2 <= self.steps <= 100, "2 to 100"),
            ("cfg", self.cfg, 0 <= self.cfg <= 100, "0 to 100"),
            ("threads", self.threads, self.threads is None or 1 <= self.threads <= 1024,
             "1 to 1024"),
        )  # fmt: skip
        for name, value, good, allowed in checks:
            if not good:
                raise UsageError(f"{name} is {value!r}.", remedy=f"It must be {allowed}.")

    @property
    def euler_steps(self) -> int:
        """Steps as given, else the preset's."""
        return PRESETS[self.preset].steps if self.steps is None else self.steps


@dataclass(frozen=True)
class Attention:
    """Attention of one run over cached rows, all layers together.

    Attributes:
        ops: Operations; multiplies and adds counted apart.
        read_bytes: Bytes of the cache that are read, conversions included.
        copied_bytes: Bytes read and written when a cache grows, share of one run.
    """

    ops: float = 0.0
    read_bytes: float = 0.0
    copied_bytes: float = 0.0


@dataclass(frozen=True)
class PlannedRun:
    """Equal runs of one graph.

    Attributes:
        component: Component as the metrics name it.
        graph: Graph name.
        shapes: Shape of every input that decides the work.
        per: Once per patch, or once before the first.
        times: Runs each time.
        before_audio: Whether the first samples wait for it.
        attention: Attention over the KV cache of one run.
    """

    component: str
    graph: str
    shapes: Mapping[str, Shape]
    per: Literal["request", "patch"] = "patch"
    times: float = 1.0
    before_audio: bool = True
    attention: Attention = field(default_factory=Attention)


@dataclass(frozen=True)
class FamilyPlan:
    """What a family would do for a request.

    Attributes:
        runs: All runs, in order.
        patch_seconds: Audio per patch.
        rows: KV rows at the end.
        prefix_rows: KV rows before the first patch.
        kv_bytes: Bytes of the KV cache for them.
        graphs: Graphs that are loaded.
    """

    runs: tuple[PlannedRun, ...]
    patch_seconds: float
    rows: int
    prefix_rows: int
    kv_bytes: int
    graphs: tuple[str, ...]
