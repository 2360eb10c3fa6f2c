"""TensorRT's options for one graph: precision, caches, and shapes of every dynamic input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_profiles.flow_placement import FlowSection
from device_profiles.providers import TensorRtProvider
from edge_runtime.errors import BackendError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ShapeRange:
    """Shapes that one input takes.

    Attributes:
        least: Smallest size of every dimension.
        usual: What the engine is tuned for.
        most: Largest size of every dimension.
    """

    least: Shape
    usual: Shape
    most: Shape


def tensorrt_options(
    provider: TensorRtProvider,
    flow: FlowSection,
    graph: Path,
    ranges: Mapping[str, ShapeRange],
    cache: Path | None,
) -> dict[str, str]:
    """Options that belong to one graph.

    Args:
        provider: What the profile says of TensorRT.
        flow: Precision of the arithmetic.
        graph: The graph file.
        ranges: Shapes by input name, for every dynamic input at least.
        cache: Folder of engines and timings; None keeps neither.

    Raises:
        BackendError: A dynamic input without a range, or a range that does not fit it.
    """
    options = {}
    if flow.precision in ("f16", "int8"):
        options["trt_fp16_enable"] = "1"
    model = _model(graph)
    # TensorRT refuses graphs with quantized weights where int8 is not allowed.
    if any(node.op_type == "DequantizeLinear" for node in model.graph.node):
        options["trt_int8_enable"] = "1"
    if cache is not None and provider.engine_cache:
        options |= {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(cache)}
    if cache is not None and provider.timing_cache:
        options |= {"trt_timing_cache_enable": "1", "trt_timing_cache_path": str(cache)}
    dynamic = {name: shape for name, shape in _inputs(model).items() if None in shape}
    for name, shape in dynamic.items():
        _check(graph, name, shape, ranges.get(name))
    # Either every dynamic input is listed or none counts; with none, an engine is built anew for
    # every shape that comes along.
    for word, part in (("min", "least"), ("opt", "usual"), ("max", "most")):
        if dynamic:
            options[f"trt_profile_{word}_shapes"] = ",".join(
                f"{name}:{'x'.join(map(str, getattr(ranges[name], part)))}" for name in dynamic
            )
    return options


def _model(graph: Path) -> Any:
    import onnx

    try:
        return onnx.load(graph, load_external_data=False)
    except Exception as error:  # protobuf's types, which nobody promises
        raise BackendError(f"{graph} is no graph: {error}.", remedy="Export it again.") from error


def _inputs(model: Any) -> dict[str, tuple[int | None, ...]]:
    """Inputs by name, None for a dimension that is not fixed."""
    return {
        port.name: tuple(
            dim.dim_value if dim.HasField("dim_value") else None
            for dim in port.type.tensor_type.shape.dim
        )
        for port in model.graph.input
    }


def _check(graph: Path, name: str, shape: tuple[int | None, ...], found: ShapeRange | None) -> None:
    if found is None:
        raise BackendError(
            f"{graph}: TensorRT needs the shapes of {name!r}, and this family gives none.",
            remedy="Set flow.place to cuda or cpu in the profile.",
        )
    for part in (found.least, found.usual, found.most):
        fits = len(part) == len(shape) and all(
            size in (None, value) for size, value in zip(shape, part, strict=True)
        )
        if not fits:
            raise BackendError(
                f"{graph}: {name!r} is {shape}, not {part}.", remedy="Export the bundle again."
            )
    if not all(a <= b <= c for a, b, c in zip(found.least, found.usual, found.most, strict=True)):
        raise BackendError(
            f"{graph}: the shapes of {name!r} are not in order.", remedy="Report this."
        )
