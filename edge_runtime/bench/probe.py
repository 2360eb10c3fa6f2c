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
from edge_runtime.bench.work import Product
from edge_runtime.memory.limits import MemorySettings, current_limits

# Large enough that a kernel's fixed costs vanish, small enough that weights stay in a cache.
_ROWS, _INPUTS, _OUTPUTS = 256, 1024, 2048
_BUFFER_BYTES = 256 << 20
_LEAST_BUFFER_BYTES = 16 << 20
# Weights of a product that are in no cache when its turn comes; a session packs a second copy.
_COLD_BYTES = 96 << 20
_SECONDS = 0.3
_MICROSOFT = "com.microsoft"


def probe_machine(formats: Iterable[str], threads: int) -> Probe:
    """Measure; takes about half a second per format.

    Args:
        formats: Weight formats: ``f32``, ``int8``, or ``int8-128`` and the like for blocks.
        threads: Threads to use.
    """
    return Probe(
        threads=threads,
        read_gbs=round(read_bandwidth(threads) / 1e9, 2),
        gflops={name: round(gemm_speed(name, threads) / 1e9, 1) for name in sorted(set(formats))},
    )


def gemm_speed(format_: str, threads: int) -> float:
    """FLOP/s of a large matrix product (256 x 1024 x 2048); 2 per multiply-add."""
    product = Product(format_, _ROWS, _INPUTS, _OUTPUTS)
    return 2 * _ROWS * _INPUTS * _OUTPUTS / _seconds(product, 1, threads)


def product_ms(product: Product, threads: int) -> float:
    """Least milliseconds of a product alone, its weights read from memory each time."""
    bits = 32 if product.format == "f32" else int(product.format[3])
    size = max(product.inputs * product.outputs * bits // 8, 1)
    # At most 64, since a run costs something as well; tiny models are all in the cache anyway.
    copies = min(max(_room(_COLD_BYTES) // size, 1), 64)
    return _seconds(product, copies, threads) * 1000 / copies


def _seconds(product: Product, copies: int, threads: int) -> float:
    data = product_model(product, copies).SerializeToString()
    options = session_options(threads, spinning=True)
    session = ort.InferenceSession(data, options, providers=[PROVIDER])
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((product.rows, product.inputs), np.float32)}
    return _best(lambda: session.run(None, feeds))


def _room(wanted: int) -> int:
    """Bytes to take for a probe: no more than a quarter of what there is."""
    free = min((limit.available for limit in current_limits(MemorySettings())), default=0)
    return max(min(wanted, free // 4), _LEAST_BUFFER_BYTES)


def read_bandwidth(threads: int) -> float:
    """Bytes per second of reading a buffer beyond the caches, each thread its own part."""
    size = _room(_BUFFER_BYTES) // threads * threads
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


def product_model(product: Product, copies: int = 1) -> onnx.ModelProto:
    """The product of x f32 [rows, inputs] with ``copies`` weights, each with an output."""
    weights: dict[str, npt.NDArray[Any]] = {}
    nodes = []
    for index in range(copies):
        named = {f"{name}{index}": array for name, array in _weights(product, index).items()}
        weights |= named
        nodes.append(_node(product, ["x", *named], f"y{index}"))
    shape = [product.rows, product.outputs]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [product.rows, product.inputs])],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape) for node in nodes],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _weights(product: Product, seed: int) -> dict[str, npt.NDArray[Any]]:
    rng, size = np.random.default_rng(seed), (product.inputs, product.outputs)
    if product.format == "f32":
        return {"w": rng.standard_normal(size, np.float32)}
    if product.format == "int8":
        values = rng.integers(-127, 127, size).astype(np.int8)
        return {"w": values, "scale": np.full(product.outputs, 0.01, np.float32)}
    bits, block = _blocks(product.format)
    blocks = -(-product.inputs // block)
    packed = rng.integers(0, 255, (product.outputs, blocks, block * bits // 8)).astype(np.uint8)
    return {"w": packed, "scale": np.full((product.outputs, blocks), 0.01, np.float32)}


def _node(product: Product, inputs: list[str], output: str) -> onnx.NodeProto:
    if product.format == "f32":
        return helper.make_node("MatMul", inputs, [output])
    if product.format == "int8":
        return helper.make_node("DynamicQuantizeMatMul", inputs, [output], domain=_MICROSOFT)
    bits, block = _blocks(product.format)
    return helper.make_node(
        "MatMulNBits", inputs, [output], domain=_MICROSOFT, K=product.inputs, N=product.outputs,
        bits=bits, block_size=block, accuracy_level=4,
    )  # fmt: skip


def _blocks(format_: str) -> tuple[int, int]:
    """Bits and block size of a format such as ``int8-128``."""
    bits, _, block = format_.removeprefix("int").partition("-")
    return int(bits), int(block)


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
