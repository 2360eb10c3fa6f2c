"""Where the flow estimator runs; it is most of the arithmetic and has one shape."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from device_profiles.section import Section

FlowPlace = Literal["cpu", "cuda", "tensorrt", "rknn", "rknn-sim"]


class FlowSection(Section):
    """Flow estimator.

    Attributes:
        place: What computes it; ``rknn-sim`` is Rockchip's simulator on a PC, for development.
        graphs: Dialect of its graph: ``ort`` uses ONNX Runtime's own operators, ``portable`` only
            standard ones, in shapes that are fixed but for the batch.
        precision: Arithmetic on an accelerator; the CPU follows the bundle's weights.
        npu_cores: NPU cores of one context (rknn only).
        npu_least_snr_db: Signal-to-noise ratio in dB that the NPU's golden run must reach against
            the CPU's values, or the CPU computes (rknn and rknn-sim only).
        npu_limit_ms: Longest that one evaluation on the NPU may take before the CPU takes over.
    """

    place: FlowPlace = "cpu"
    graphs: Literal["ort", "portable"] = "ort"
    precision: Literal["f32", "f16", "int8"] | None = None
    npu_cores: Literal["auto", "0", "1", "2", "0_1", "0_1_2"] = "auto"
    npu_least_snr_db: float = Field(20.0, ge=0, le=120, strict=False)
    npu_limit_ms: int = Field(2000, ge=10, le=600_000)


def with_place(flow: FlowSection, place: FlowPlace) -> FlowSection:
    """The same section with another place, and what goes with it."""
    if place == flow.place:
        return flow
    npu = place in ("rknn", "rknn-sim")
    return FlowSection(
        place=place,
        graphs="portable" if npu or place == "tensorrt" else "ort",
        precision=None if place == "cpu" else flow.precision or "f16",
        npu_cores=flow.npu_cores if npu else "auto",
        npu_least_snr_db=flow.npu_least_snr_db,
        npu_limit_ms=flow.npu_limit_ms,
    )
