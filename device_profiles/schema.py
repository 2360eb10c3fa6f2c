"""A device profile, as data: what a board runs, with how many threads, within which limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict, field_validator, model_validator

from device_profiles.combinations import impossible
from device_profiles.figures import FiguresSection
from device_profiles.flow_placement import FlowSection
from device_profiles.hardware import MatchSection, RequiresSection, Soc
from device_profiles.providers import CpuProvider, Provider
from device_profiles.section import Section as _Section
from device_profiles.weight_formats import PlanName, chosen_formats

PROFILE_NAME = r"^[a-z0-9][a-z0-9-]*$"


# YAML has lists, no tuples; the numbers themselves are taken strictly.
CpuNumbers = Annotated[
    tuple[Annotated[int, Strict(), Field(ge=0, le=4095)], ...], Strict(False)
]


class RuntimeSection(_Section):
    """ONNX Runtime settings.

    Attributes:
        threads: Threads per session, or ``auto``: every CPU this process may use.
        spinning: Whether idle pool threads spin between the nodes of a run.
        overlap_vae: Whether a patch is decoded to audio while the next one is computed; ``auto``
            does so where that measured faster (see docs/decisions.md).
        cores: CPUs that threads run on: ``all`` that this process may use, ``big`` ones by the
            kernel's capacity per CPU, or their numbers.
        arena: Whether ONNX Runtime keeps freed scratch memory for the next run.
        kleidiai: Whether Arm's KleidiAI kernels are used; they keep packed copies by shape.
    """

    threads: int | Literal["auto"] = Field("auto")
    spinning: bool = False
    overlap_vae: bool | Literal["auto"] = Field("auto")
    cores: Literal["all", "big"] | CpuNumbers = "all"
    arena: bool = True
    kleidiai: bool = True

    @model_validator(mode="after")
    def _positive(self) -> RuntimeSection:
        if self.threads != "auto" and not 1 <= self.threads <= 1024:
            raise ValueError("threads must be 'auto' or 1 to 1024")
        if not self.cores:
            raise ValueError("cores must be 'all', 'big' or at least one CPU number")
        return self


class KvSection(_Section):
    """KV cache.

    Attributes:
        bucket_rows: Capacities are multiples of this.
        dtype: Storage of keys and values; f16 halves a row, int8 quarters it.
        max_rows: Ceiling, below the model's own when smaller.
        pool_mib: Most MiB of KV buffers kept between requests.
        kept_voices_mib: Most MiB of KV rows kept for voices that were used before.
    """

    dtype: Literal["f32", "f16", "int8"] = "f32"
    bucket_rows: int = Field(256, ge=16, le=8192, multiple_of=16)
    max_rows: int = Field(8192, ge=16)
    pool_mib: int = Field(20, ge=0)
    kept_voices_mib: int = Field(8, ge=0)


class TextSection(_Section):
    """Long texts.

    Attributes:
        chunk_rows: KV rows that one chunk may need, prefix and longest reply together.
    """

    chunk_rows: int = Field(1024, ge=64)


class MemorySection(_Section):
    """Memory limits.

    Attributes:
        hard_mib: Most MiB of anonymous memory this process may hold; none by default.
        soft_mib: Above this, what is not needed is given back; none by default.
        reserve_mib: MiB of the system's available memory that are left to others.
        prepare: Whether a bundle is prepared at its first load.
        prepare_from_mib: Bundles with fewer MiB of weights run as they are.
        oom_score_adj: How gladly the kernel kills this process when memory is short, -1000 to
            1000; left alone by default.
    """

    hard_mib: int | None = Field(None, ge=64)
    soft_mib: int | None = Field(None, ge=64)
    reserve_mib: int = Field(64, ge=0)
    prepare: Literal["auto", "never"] = "auto"
    prepare_from_mib: int = Field(64, ge=0)
    oom_score_adj: int | None = Field(None, ge=-1000, le=1000)


class WeightsSection(_Section):
    """Weight formats that `export` writes; ``weights: int8`` is short for a plan alone.

    Attributes:
        plan: Formats to start from.
        formats: Formats that differ from the plan's, by layer kind or the start of its name.
    """

    plan: PlanName = "int8"
    formats: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _plan_alone(cls, data: Any) -> Any:
        return {"plan": data} if isinstance(data, str) else data

    @field_validator("formats")
    @classmethod
    def _known(cls, formats: dict[str, str]) -> dict[str, str]:
        chosen_formats(formats)
        return formats


class Profile(_Section):
    """One board or kind of machine.

    Attributes:
        name: File stem; what `--profile` takes.
        title: For people.
        machines: Values of `uname -m` that select it by default.
        weights: Weight formats that `export --profile` takes unless told otherwise.
        soc: Chip; decides what can be asked of the board.
        providers: Execution providers in the order they are tried; the CPU is the last.
        flow: Where the flow estimator runs.
        requires: Oldest versions that work.
        match: How the board is recognized.
        notes: Power, heat and other things to know.
        verified: On what hardware, and with what, this profile was run; empty for never.
        figures: What the board can do, with sources.
    """

    name: str = Field(pattern=PROFILE_NAME)
    title: str
    machines: tuple[str, ...] = Field((), strict=False)
    weights: WeightsSection = WeightsSection()
    runtime: RuntimeSection = RuntimeSection()
    kv: KvSection = KvSection()
    text: TextSection = TextSection()
    memory: MemorySection = MemorySection()
    soc: Soc = "any"
    providers: tuple[Provider, ...] = Field((CpuProvider(name="cpu"),), strict=False)
    flow: FlowSection = FlowSection()
    requires: RequiresSection = RequiresSection()
    match: MatchSection = MatchSection()
    notes: tuple[str, ...] = Field((), strict=False)
    verified: str = ""
    figures: FiguresSection = FiguresSection()

    @model_validator(mode="after")
    def _possible(self) -> Profile:
        problem = impossible(self)
        if problem:
            raise ValueError(problem)
        return self
