"""Opens what computes the estimator: the NPU of this board, or the simulator on a PC."""

from __future__ import annotations

from pathlib import Path

from device_profiles.flow_placement import FlowSection
from device_profiles.hardware import RequiresSection
from edge_runtime.backends.rknn import RknnModel, RknnRunner, RknnSettings
from edge_runtime.npu.flow_model import FlowModel
from edge_runtime.npu.library import OLDEST_DRIVER
from edge_runtime.npu.runner import NpuRunner
from edge_runtime.npu.simulator import SimulatorRunner
from edge_runtime.placement import NpuPlace


def open_npu(
    place: NpuPlace,
    model: FlowModel,
    flow: FlowSection,
    requires: RequiresSection,
    root: Path = Path("/"),
) -> NpuRunner:
    """Open it.

    Args:
        place: Which of the two.
        model: What to load.
        flow: Cores and time limit.
        requires: Oldest versions that work.
        root: Where ``usr``, ``sys`` and ``dev`` are.

    Raises:
        NpuError: It cannot be used.
    """
    if place == "rknn-sim":
        return SimulatorRunner(model)
    form = model.form
    x = (2, form.latent_dim, form.patch_size)
    return RknnRunner(
        RknnModel(
            file=model.file,
            inputs=(x, (2, form.hidden, form.prefix_tokens)),
            output=x,
            mark=model.entry.source_sha256,
            soc=model.soc,
        ),
        RknnSettings(
            cores=flow.npu_cores,
            limit_s=flow.npu_limit_ms / 1000,
            least_driver=requires.rknpu_driver or OLDEST_DRIVER,
            least_library=requires.librknnrt or "",
            root=root,
        ),
    )
