"""ONNX Runtime's execution providers, with the options a board may set."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from device_profiles.section import Section


class CpuProvider(Section):
    """The CPU; its settings are those of `runtime`."""

    name: Literal["cpu"]


class CudaProvider(Section):
    """CUDA.

    Attributes:
        device_id: Which GPU.
        memory_limit_mib: Most MiB of the provider's arena; workspaces of cuDNN and cuBLAS and the
            CUDA context come on top.
        arena_extend: How the arena grows; doubling is a bad fit for memory shared with the CPU.
        conv_search: How cuDNN finds its convolutions; exhaustive takes large workspaces.
        cuda_graph: Whether runs of fixed shape are captured.
    """

    name: Literal["cuda"]
    device_id: int = Field(0, ge=0)
    memory_limit_mib: int | None = Field(None, ge=64)
    arena_extend: Literal["same_as_requested", "next_power_of_two"] = "same_as_requested"
    conv_search: Literal["heuristic", "default", "exhaustive"] = "heuristic"
    cuda_graph: bool = False


class TensorRtProvider(Section):
    """TensorRT.

    Attributes:
        device_id: Which GPU.
        workspace_mib: Most MiB that building an engine may take for scratch.
        builder_level: Effort of the build, 0 to 5.
        engine_cache: Whether engines are kept in the state folder.
        timing_cache: Whether measured timings are kept there, for faster rebuilds.
        cuda_graph: Whether runs are captured.
    """

    name: Literal["tensorrt"]
    device_id: int = Field(0, ge=0)
    workspace_mib: int = Field(256, ge=16)
    builder_level: int = Field(3, ge=0, le=5)
    engine_cache: bool = True
    timing_cache: bool = True
    cuda_graph: bool = False


Provider = Annotated[CpuProvider | CudaProvider | TensorRtProvider, Field(discriminator="name")]
