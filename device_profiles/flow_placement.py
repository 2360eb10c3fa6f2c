"""Where the flow estimator runs; it is most of the arithmetic and has one shape."""

from __future__ import annotations

from typing import Literal

from device_profiles.section import Section


class FlowSection(Section):
    """Flow estimator.

    Attributes:
        place: What computes it.
        graphs: Dialect of its graph: ``ort`` uses ONNX Runtime's own operators, ``portable`` only
            standard ones, in shapes that are fixed but for the batch.
        precision: Arithmetic on an accelerator; the CPU follows the bundle's weights.
        npu_cores: NPU cores of one context (rknn only).
    """

    place: Literal["cpu", "cuda", "tensorrt", "rknn"] = "cpu"
    graphs: Literal["ort", "portable"] = "ort"
    precision: Literal["f32", "f16", "int8"] | None = None
    npu_cores: Literal["auto", "0", "1", "2", "0_1", "0_1_2"] = "auto"
