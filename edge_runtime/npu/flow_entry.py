"""What a bundle says of its flow estimator for an NPU: `npu/flow.json`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge_runtime.bundle import Bundle, describe_errors
from edge_runtime.errors import BundleError

ENTRY = "npu/flow.json"


class NpuFlowEntry(BaseModel):
    """The description of a converted estimator.

    Attributes:
        format: Version of this layout.
        model: The ``.rknn`` file's path inside the bundle.
        target: Chip that it was made for, such as ``rk3588``.
        precision: Its arithmetic.
        patch_size: P, latent frames per patch.
        latent_dim: D, channels of a latent frame.
        hidden: h, width of the estimator.
        x_scale: The noisy patch is given times this.
        prefix_scale: The conditioning tokens are given times this.
        toolkit: Version of rknn-toolkit2 that converted it.
        gated_scale: The up projection is computed times this.
        margin: Room that both scales leave above the largest value seen, as a factor.
        largest: Largest magnitudes that were seen in recorded decoding, without scales.
        source_sha256: Of the ONNX graph that was converted; also its custom string.
        operators: Operators of the compiler's table.
        cpu_operators: Those that the NPU leaves to the CPU: reshapes at inputs and outputs.
        cycles: Cycles of one evaluation by that table.
        memory_bytes: NPU memory that it takes, weights and buffers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    model: str
    target: str
    precision: Literal["f16", "int8"] = "f16"
    patch_size: int = Field(gt=0)
    latent_dim: int = Field(gt=0)
    hidden: int = Field(gt=0)
    x_scale: float = Field(1.0, gt=0, allow_inf_nan=False)
    prefix_scale: float = Field(1.0, gt=0, allow_inf_nan=False)
    gated_scale: float = Field(1.0, gt=0, allow_inf_nan=False)
    margin: float = Field(1.0, ge=1, allow_inf_nan=False)
    largest: dict[str, float] = Field(default_factory=dict)
    toolkit: str
    source_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    operators: int = Field(0, ge=0)
    cpu_operators: tuple[str, ...] = ()
    cycles: int = Field(0, ge=0)
    memory_bytes: int = Field(0, ge=0)

    @staticmethod
    def of(bundle: Bundle) -> NpuFlowEntry | None:
        """The description; None where the bundle has no such model.

        Raises:
            BundleError: It is torn or of another version.
        """
        if ENTRY not in bundle.manifest.files:
            return None
        file = bundle.path(ENTRY)
        try:
            return NpuFlowEntry.model_validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
            reason = describe_errors(error) if isinstance(error, ValidationError) else error
            raise BundleError(
                f"{file}: {reason}.", remedy="Export or copy the bundle again."
            ) from error
