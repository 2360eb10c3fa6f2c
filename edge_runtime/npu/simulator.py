"""The converted estimator in rknn-toolkit2's simulator: the NPU's arithmetic on a PC, slowly."""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt

from edge_runtime.npu.flow_model import FlowModel
from edge_runtime.npu.runner import NpuError
from edge_runtime.rknn_toolkit.conversions import ConversionCache
from edge_runtime.rknn_toolkit.convert import model_arguments
from edge_runtime.rknn_toolkit.environment import ToolkitEnvironment
from edge_runtime.rknn_toolkit.toolkit_error import ToolkitError
from edge_runtime.rknn_toolkit.worker import ToolkitWorker

FloatArray = npt.NDArray[np.float32]
# At the real sizes 170 s have been seen on a busy machine.
_OPEN_LIMIT_S, _RUN_LIMIT_S, _ASK_LIMIT_S = 3600.0, 600.0, 120.0


class SimulatorRunner:
    """One model in a process of the toolkit's. See `NpuRunner`.

    A converted model cannot be simulated: it is built again, from the graph that the conversion
    left on this machine, in the process that then runs it.

    Args:
        model: The bundle's model.

    Raises:
        NpuError: No toolkit, no graph of this model on this machine, or it cannot be built.
    """

    def __init__(self, model: FlowModel) -> None:
        form, entry = model.form, model.entry
        self._x = (2, form.latent_dim, form.patch_size)
        self._prefix = (2, form.hidden, form.prefix_tokens)
        source = ConversionCache.default().source(entry.source_sha256)
        if source is None:
            raise NpuError(
                "The graph that the bundle's model was converted from is not on this machine, and "
                "a converted model cannot be simulated.", reason="no-source",
                remedy="Export the bundle on this machine.",
            )  # fmt: skip
        log = source.folder.parent / "simulator.log"
        worker: ToolkitWorker | None = None
        try:
            worker = ToolkitWorker(ToolkitEnvironment.find().python, log)
            self._versions = worker.ask("versions", _ASK_LIMIT_S)
            arguments = model_arguments(source, entry.target, entry.precision)
            shapes = [self._x, self._prefix]
            worker.ask("simulate", _OPEN_LIMIT_S, arguments={**arguments, "shapes": shapes})
        except ToolkitError as error:
            if worker is not None:
                worker.close()
            raise _as_npu_error(error) from error
        except BaseException:
            # Ctrl-C while it builds.
            if worker is not None:
                worker.close()
            raise
        self._worker = worker

    def run(self, x: FloatArray, prefix: FloatArray) -> FloatArray:
        """One evaluation. See `NpuRunner.run`."""
        for array, shape in ((x, self._x), (prefix, self._prefix)):
            if array.shape != shape or array.dtype != np.float32:
                raise NpuError(
                    f"The simulator was given {array.dtype}{list(array.shape)}, not "
                    f"float32{list(shape)}.", reason="shape",
                )  # fmt: skip
        sent = [
            base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
            for array in (x, prefix)
        ]
        try:
            found = self._worker.ask("run", _RUN_LIMIT_S, arguments={"inputs": sent})
        except ToolkitError as error:
            raise _as_npu_error(error) from error
        shape = tuple(found["shapes"][0]) if len(found["shapes"]) == 1 else ()
        if shape != self._x:
            raise NpuError(
                f"The simulator gave {found['shapes']}, not one result of {list(self._x)}.",
                reason="outputs",
            )
        data = base64.b64decode(found["outputs"][0])
        return np.frombuffer(data, np.float32).reshape(shape).copy()

    def versions(self) -> dict[str, str]:
        """Versions of toolkit and its Python. See `NpuRunner.versions`."""
        return {str(name): str(value) for name, value in self._versions.items()}

    def close(self) -> None:
        """End the process. See `NpuRunner.close`."""
        self._worker.close()


def _as_npu_error(error: ToolkitError) -> NpuError:
    reasons = {"missing": "no-toolkit", "timeout": "timeout"}
    return NpuError(
        error.message, reason=reasons.get(error.reason, "simulator"), remedy=error.remedy
    )
