"""A short probe of what this machine can do: matrix products in the kernels that graphs use, and
reading memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.backends.ort import PROVIDER, session_options
from edge_runtime.bench.results import Probe
from edge_runtime.memory.limits import MemorySettings, current_limits

# Large enough that a kernel's fixed costs vanish, small enough that weights stay in a cache.
_ROWS, _INPUTS, _OUTPUTS = 256, 1024, 2048
_BUFFER_BYTES = 256 << 20
_LEAST_BUFFER_BYTES = 16 << 20
_SECONDS = 0.4
_MICROSOFT = "com.microsoft"
_BLOCKS = {"int8_block": (8, 128), "int4_block": (4, 32)}


def probe_machine(formats: Iterable[str], threads: int) -> Probe:
    """Measure; takes about half a second per format.

    Args:
        formats: Weight formats: ``f32``, ``int8``, ``int8_block``, ``int4_block``.
        threads: Threads to use.
    """
    return Probe(
        threads=threads,
        read_gbs=round(read_bandwidth(threads) / 1e9, 2),
        gflops={name: round(gemm_speed(name, threads) / 1e9, 1) for name in sorted(set(formats))},
    )


def gemm_speed(format_: str, threads: int) -> float:
    """FLOP/s of a large matrix product (256 x 1024 x 2048); 2 per multiply-add."""
    options = session_options(threads, spinning=True)
    data = gemm_model(format_).SerializeToString()
    session = ort.InferenceSession(data, options, providers=[PROVIDER])
    feeds = {"x": np.random.default_rng(0).standard_normal((_ROWS, _INPUTS), np.float32)}
    best = _best(lambda: session.run(None, feeds))
    return 2 * _ROWS * _INPUTS * _OUTPUTS / best


def read_bandwidth(threads: int) -> float:
    """Bytes per second of reading a buffer beyond the caches, each thread its own part."""
    room = min((limit.available for limit in current_limits(MemorySettings())), default=0)
    size = max(min(_BUFFER_BYTES, room // 4), _LEAST_BUFFER_BYTES) // threads * threads
    # Filled, since untouched pages all map to one page of zeros.
    buffer = np.full(size, 1, np.uint8)
    scan = ctypes.CDLL(None).memchr
    scan.restype, scan.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    part = size // threads
    starts = [buffer.ctypes.data + index * part for index in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        # Looks for a byte that is not there, and lets other threads run meanwhile.
        best = _best(lambda: list(pool.map(lambda start: scan(start, 0, part), starts)))
    return size / best


def gemm_model(format_: str) -> onnx.ModelProto:
    """One product of x f32 [256, 1024] in a weight format."""
    rng = np.random.default_rng(0)
    weights: dict[str, npt.NDArray[Any]] = {}
    attributes: dict[str, Any] = {}
    domain, operator = _MICROSOFT, "DynamicQuantizeMatMul"
    if format_ in _BLOCKS:
        bits, block = _BLOCKS[format_]
        blocks, packed = _INPUTS // block, block * bits // 8
        weights["w"] = rng.integers(0, 255, (_OUTPUTS, blocks, packed)).astype(np.uint8)
        weights["scale"] = np.full((_OUTPUTS, blocks), 0.01, np.float32)
        operator = "MatMulNBits"
        attributes = {
            "K": _INPUTS, "N": _OUTPUTS, "bits": bits, "block_size": block, "accuracy_level": 4
        }  # fmt: skip
    elif format_ == "int8":
        weights["w"] = rng.integers(-127, 127, (_INPUTS, _OUTPUTS)).astype(np.int8)
        weights["scale"] = np.full(_OUTPUTS, 0.01, np.float32)
    else:
        weights["w"] = rng.standard_normal((_INPUTS, _OUTPUTS), np.float32)
        domain, operator = "", "MatMul"
    node = helper.make_node(operator, ["x", *weights], ["y"], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "gemm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [_ROWS, _INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [_ROWS, _OUTPUTS])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _best(run: Callable[[], object]) -> float:
    """Shortest time of many: others on the machine can only make it longer."""
    run()
    best, count, end = float("inf"), 0, time.perf_counter() + _SECONDS
    while count < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        count += 1
    return best
