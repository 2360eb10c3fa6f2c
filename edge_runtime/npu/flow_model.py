"""The bundle's model of the estimator for one NPU, checked as far as that goes without the NPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from device_profiles.combinations import npu_target
from edge_runtime.bundle import Bundle
from edge_runtime.npu.adapter import NpuForm
from edge_runtime.npu.flow_entry import NpuFlowEntry
from edge_runtime.npu.runner import NpuError

_EXPORT = (
    "Export it again with --profile and a board that has an NPU (docs/npu.md); with --flow cpu "
    "nothing is asked for."
)


@dataclass(frozen=True)
class FlowModel:
    """What there is to load.

    Attributes:
        bundle: Where it lies.
        entry: The bundle's description of it.
        file: The ``.rknn`` file.
        form: Sizes and scales.
        npu_bytes: What it takes of the NPU's memory.
        soc: Chip of this board; empty where it is not known.
    """

    bundle: Bundle
    entry: NpuFlowEntry
    file: Path
    form: NpuForm
    npu_bytes: int
    soc: str = ""

    @staticmethod
    def of(bundle: Bundle, soc: str = "") -> FlowModel:
        """Find it.

        Raises:
            NpuError: The bundle has none, or none for this chip.
            BundleError: Its description is torn.
        """
        entry = NpuFlowEntry.of(bundle)
        if entry is None:
            raise NpuError(
                "The bundle has no model for the NPU.", reason="no-model", remedy=_EXPORT
            )
        if soc and npu_target(soc) != entry.target:
            raise NpuError(
                f"The bundle's model is for {entry.target}, this is {soc}.", reason="platform",
                remedy=_EXPORT,
            )  # fmt: skip
        form = NpuForm(
            patch_size=entry.patch_size,
            latent_dim=entry.latent_dim,
            hidden=entry.hidden,
            x_scale=entry.x_scale,
            prefix_scale=entry.prefix_scale,
        )
        file = bundle.path(entry.model)
        # Where the conversion did not count it: the weights, which are most of it.
        size = entry.memory_bytes or bundle.manifest.files[entry.model].size
        return FlowModel(bundle, entry, file, form, size, soc)
