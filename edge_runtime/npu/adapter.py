"""The flow estimator on an NPU, behind the same inputs and outputs as the graph for the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Array
from edge_runtime.npu.runner import NpuError, NpuRunner

FloatArray = npt.NDArray[np.float32]
# Largest finite f16. On its way out of the NPU a larger value stops there.
F16_MAX = 65504.0
_BATCH = 2
_MU, _TIME = 2, 1


@dataclass(frozen=True)
class NpuForm:
    """Sizes and scales of the converted estimator.

    Attributes:
        patch_size: P, latent frames per patch.
        latent_dim: D, channels of a latent frame.
        hidden: h, width of the estimator.
        x_scale: The noisy patch is given times this.
        prefix_scale: The conditioning tokens are given times this: the model's residual stream is
            that much smaller than the original's, so that it stays within f16.
    """

    patch_size: int
    latent_dim: int
    hidden: int
    x_scale: float = 1.0
    prefix_scale: float = 1.0

    @property
    def prefix_tokens(self) -> int:
        """Tokens before the noisy patch: mu, time, condition."""
        return _MU + _TIME + self.patch_size


@dataclass(frozen=True)
class NpuFlowGraph:
    """The graph ``flow`` on an NPU. See `Graph`.

    Attributes:
        runner: What computes it.
        form: Sizes and scales.
        name: For messages.
        provider: What runs it, as results name it.
    """

    runner: NpuRunner
    form: NpuForm
    name: str = "flow"
    provider: str = "rknn"

    def run(self, feeds: Mapping[str, Array]) -> dict[str, FloatArray]:
        """Run once. See `Graph.run`."""
        binding = self.bind()
        for name, array in feeds.items():
            binding.input(name, np.ascontiguousarray(array))
        batch = len(feeds["mu"])
        velocity = np.empty((batch, self.form.patch_size, self.form.latent_dim), np.float32)
        binding.output("velocity", velocity)
        binding.run()
        return {"velocity": velocity}

    def bind(self, *, fixed: bool = False) -> NpuFlowBinding:
        """Start an empty binding. See `Graph.bind`."""
        return NpuFlowBinding(self.runner, self.form)

    def close(self) -> None:
        """Release the NPU."""
        self.runner.close()


class NpuFlowBinding:
    """Bound arrays. See `Binding`; outputs are written only by runs whose values are sound.

    The NPU has one shape, a batch of 2: without guidance the second half is computed and dropped.
    """

    captured = False

    def __init__(self, runner: NpuRunner, form: NpuForm) -> None:
        self._runner, self._form = runner, form
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array] = {}
        size = form.patch_size
        self._x = np.zeros((_BATCH, form.latent_dim, size), np.float32)
        self._prefix = np.zeros((_BATCH, form.hidden, form.prefix_tokens), np.float32)

    def input(self, name: str, array: Array) -> None:
        """Bind an input. See `Binding.input`."""
        size, hidden = self._form.patch_size, self._form.hidden
        wanted = {
            "x": (1, size, self._form.latent_dim),
            "mu": (len(array), _MU, hidden) if array.ndim and len(array) <= _BATCH else (),
            "time_token": (1, _TIME, hidden),
            "cond_tokens": (1, size, hidden),
        }.get(name)
        self._check(name, array, wanted)
        self._inputs[name] = array

    def output(self, name: str, array: Array) -> None:
        """Bind an output. See `Binding.output`."""
        fits = name == "velocity" and array.ndim == 3 and 0 < len(array) <= _BATCH
        wanted = (len(array), self._form.patch_size, self._form.latent_dim) if fits else None
        self._check(name, array, wanted)
        self._outputs[name] = array

    def run(self, *, give_back: bool = False) -> None:
        """Run once. See `Binding.run`.

        Raises:
            NpuError: The run failed, an input is out of range, or the result is not sound.
        """
        form, inputs = self._form, self._inputs
        self._x[:] = inputs["x"][0].T * np.float32(form.x_scale)
        scale = np.float32(form.prefix_scale)
        # The order of the graph's own concatenation. Rows of mu that are missing stay zero.
        self._prefix[: len(inputs["mu"]), :, :_MU] = inputs["mu"].transpose(0, 2, 1) * scale
        self._prefix[:, :, _MU : _MU + _TIME] = inputs["time_token"][0].T * scale
        self._prefix[:, :, _MU + _TIME :] = inputs["cond_tokens"][0].T * scale
        _check_range("the noisy patch", self._x)
        _check_range("the conditioning", self._prefix)
        velocity = self._runner.run(self._x, self._prefix)
        if velocity.shape != self._x.shape:
            raise NpuError(
                f"The NPU gave {list(velocity.shape)}, not {list(self._x.shape)}.",
                reason="outputs",
            )
        _check_range("the velocity", velocity)
        if not velocity.any():
            # What an overflow in a norm comes to; no real input does.
            raise NpuError("The NPU gave nothing but zeros.", reason="zeros")
        target = self._outputs["velocity"]
        target[:] = velocity[: len(target)].transpose(0, 2, 1)

    def sync(self) -> None:
        """Nothing to do: nothing is updated in place. See `Binding.sync`."""

    def _check(self, name: str, array: Array, wanted: tuple[int, ...] | None) -> None:
        if wanted is None or array.shape != wanted or array.dtype != np.float32:
            raise NpuError(
                f"flow: {name} is {array.dtype}{list(array.shape)}, which the NPU's model does not "
                "have.", reason="shape", remedy="Export the bundle again.",
            )  # fmt: skip


def _check_range(what: str, array: FloatArray) -> None:
    largest = float(np.abs(array).max())
    if not np.isfinite(largest):
        raise NpuError(f"Not all values of {what} are finite.", reason="not-finite")
    if largest >= F16_MAX:
        raise NpuError(
            f"{what[0].upper()}{what[1:]} reaches {largest:.0f}, the end of f16.", reason="range"
        )
