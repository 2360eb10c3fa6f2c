"""Which library a provider of ONNX Runtime lacks; ONNX Runtime itself says so in its log only."""

from __future__ import annotations

import ctypes
from pathlib import Path

import onnxruntime as ort

_FILES = {
    "CUDAExecutionProvider": "libonnxruntime_providers_cuda.so",
    "TensorrtExecutionProvider": "libonnxruntime_providers_tensorrt.so",
}
# The loader's words. Symbols that only ONNX Runtime resolves are complained of too.
_SIGN = "cannot open shared object file"


def missing_library(ort_name: str, folder: Path | None = None) -> str:
    """The library that a provider's own one needs and that is not found.

    Args:
        ort_name: ONNX Runtime's name of the provider.
        folder: Where its libraries are; the installed package's by default.

    Returns:
        A file name such as ``libcublasLt.so.13``; empty if none is known to be missing.
    """
    folder = folder or Path(ort.__file__).parent / "capi"
    path = folder / _FILES.get(ort_name, "")
    if ort_name not in _FILES or not path.is_file():
        return ""
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        name, _, rest = str(error).partition(":")
        return name if _SIGN in rest else ""
    return ""
