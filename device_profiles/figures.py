"""Published or measured figures of a board, each with its source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from device_profiles.section import Section


class Figure(Section):
    """One figure.

    Attributes:
        value: In the unit that its key names.
        per: The whole board, or one thread of it.
        rows: Rows of the product that a speed was measured with; unset for large ones.
        peak: True for what the hardware could do at most, by its clock and width; kernels stay
            below it.
        measured: True where somebody measured it; false for data sheets and arithmetic.
        source: Who says so and how, so that it can be checked.
    """

    value: float = Field(gt=0)
    per: Literal["board", "thread"] = "board"
    rows: int | None = Field(None, ge=1)
    peak: bool = False
    measured: bool
    source: str = Field(min_length=8)

    @model_validator(mode="after")
    def _either(self) -> Figure:
        if self.peak and self.measured:
            raise ValueError("peak: what was measured is no peak of the hardware")
        return self


class FiguresSection(Section):
    """What a board can do, for plans on paper. Operations are multiplies and adds counted apart.

    Attributes:
        memory_gb_s: GB/s that CPU threads move to and from memory.
        gpu_memory_gb_s: GB/s that the GPU moves.
        cpu_f32_gflops: GFLOP/s of f32 matrix products on the CPU.
        cpu_int8_gops: GOP/s of int8 matrix products on the CPU, activations quantized per call.
        cpu_int8_blocks_gops: The same with int8 weights in blocks, where it is known apart.
        cpu_int4_blocks_gops: The same with int4 weights in blocks.
        gpu_f32_gflops: GFLOP/s of f32 on the GPU, without tensor cores.
        gpu_int8_tops: Dense int8 TOP/s of the module.
        npu_int8_tops: int8 TOP/s of the NPU, all cores.
        memory_gib: GiB of memory, where all boards of this kind have the same.
    """

    memory_gb_s: Figure | None = None
    gpu_memory_gb_s: Figure | None = None
    cpu_f32_gflops: Figure | None = None
    cpu_int8_gops: Figure | None = None
    cpu_int8_blocks_gops: Figure | None = None
    cpu_int4_blocks_gops: Figure | None = None
    gpu_f32_gflops: Figure | None = None
    gpu_int8_tops: Figure | None = None
    npu_int8_tops: Figure | None = None
    memory_gib: Figure | None = None
