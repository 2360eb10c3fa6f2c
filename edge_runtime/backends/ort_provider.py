"""An execution provider as ONNX Runtime names it, made from what a profile says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from device_profiles.providers import CpuProvider, CudaProvider, Provider, TensorRtProvider

_MIB = 1 << 20
_EXTEND = {"same_as_requested": "kSameAsRequested", "next_power_of_two": "kNextPowerOfTwo"}
CPU_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True)
class OrtProvider:
    """One execution provider with its options.

    Attributes:
        name: The profile's word, such as ``cuda``.
        ort_name: ONNX Runtime's name.
        options: ONNX Runtime's options.
        device: Where its tensors live, as `OrtValue` takes it.
        device_id: Which of these devices.
        captures: Whether runs of fixed shapes are captured and replayed (CUDA graphs).
    """

    name: str
    ort_name: str = CPU_PROVIDER
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    device: str = "cpu"
    device_id: int = 0
    captures: bool = False

    @staticmethod
    def of(provider: Provider) -> OrtProvider:
        """What a profile's entry means. TensorRT's shapes and caches come later: by graph."""
        if isinstance(provider, CpuProvider):
            return OrtProvider("cpu")
        return _cuda(provider) if isinstance(provider, CudaProvider) else _tensorrt(provider)

    def with_options(self, options: Mapping[str, str]) -> OrtProvider:
        """The same with more options."""
        return replace(self, options=MappingProxyType({**self.options, **options}))

    def without_capture(self) -> OrtProvider:
        """The same, running every node anew each time."""
        kept = {key: value for key, value in self.options.items() if key not in _CAPTURE}
        return replace(self, options=MappingProxyType(kept), captures=False)

    @property
    def entry(self) -> tuple[str, dict[str, str]]:
        """As `InferenceSession` takes it."""
        return self.ort_name, dict(self.options)


_CAPTURE = ("enable_cuda_graph", "trt_cuda_graph_enable")


def _cuda(provider: CudaProvider) -> OrtProvider:
    options = {
        "device_id": str(provider.device_id),
        "arena_extend_strategy": _EXTEND[provider.arena_extend],
        "cudnn_conv_algo_search": provider.conv_search.upper(),
        # A second stream for copies races with the first (onnxruntime 4829).
        "do_copy_in_default_stream": "1",
        # TF32 keeps 10 bits of each factor; what comes out is to be the CPU's.
        "use_tf32": "0",
    }
    if provider.memory_limit_mib is not None:
        options["gpu_mem_limit"] = str(provider.memory_limit_mib * _MIB)
    if provider.cuda_graph:
        options["enable_cuda_graph"] = "1"
    return OrtProvider(
        "cuda", "CUDAExecutionProvider", MappingProxyType(options), "cuda", provider.device_id,
        provider.cuda_graph,
    )  # fmt: skip


def _tensorrt(provider: TensorRtProvider) -> OrtProvider:
    options = {
        "device_id": str(provider.device_id),
        "trt_max_workspace_size": str(provider.workspace_mib * _MIB),
        "trt_builder_optimization_level": str(provider.builder_level),
        "trt_context_memory_sharing_enable": "1",
    }
    if provider.cuda_graph:
        options["trt_cuda_graph_enable"] = "1"
    return OrtProvider(
        "tensorrt", "TensorrtExecutionProvider", MappingProxyType(options), "cuda",
        provider.device_id, provider.cuda_graph,
    )  # fmt: skip
