"""Flow solver: Euler steps with classifier-free guidance ("CFG-zero*"), one patch at a time.

Source: `UnifiedCFM` (`unified_cfm.py`) of voxcpm 2.0.3; CFG-zero*: arXiv:2503.18886.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph
from edge_runtime.cancel import CancelToken
from edge_runtime.voxcpm2.spec import VoxCpm2Spec

FloatArray = npt.NDArray[np.float32]

_SWAY = np.float32(1.0)
# Share of the schedule whose velocity is zero by definition, at least one step.
_ZERO_SHARE = 0.04
# Steps of the official schedule whose first step the even ones share.
_EVEN_AFTER = 10


@dataclass(frozen=True)
class Schedule:
    """Times of the Euler steps, from 1 (noise) to 0 (latent), all f32.

    Attributes:
        t: Time before each step [steps].
        dt: Step width [steps].
        zero_steps: Leading steps whose velocity is zero.
    """

    t: FloatArray
    dt: FloatArray
    zero_steps: int

    @staticmethod
    def of(steps: int) -> Schedule:
        """The official, sway-sampled schedule of ``steps`` steps."""
        span = _linspace_down(steps)
        half_pi = np.float32(np.pi / 2)
        span = span + _SWAY * (np.cos(half_pi * span) - np.float32(1) + span)
        t, dt = span[0], span[0] - span[1]
        times, widths = [], []
        for step in range(1, steps + 1):
            times.append(t)
            widths.append(dt)
            # The reference carries t along instead of reading it off the span; so does the sum
            # of its rounding errors.
            t = t - dt
            if step < steps:
                dt = t - span[step + 1]
        zero = max(1, int((steps + 1) * _ZERO_SHARE))
        return Schedule(np.array(times, np.float32), np.array(widths, np.float32), zero)

    @staticmethod
    def even(steps: int) -> Schedule:
        """One step as wide as the first of ten, then ``steps - 1`` of equal width.

        The first step's velocity is zero by definition: where steps are few, the official first
        one would be zero for too long, and the official last ones are the widest.
        """
        span = np.empty(steps + 1, np.float32)
        span[0] = 1
        span[1:] = np.linspace(Schedule.of(_EVEN_AFTER).t[1], 0, steps)
        return Schedule(span[:-1], span[:-1] - span[1:], 1)


class FlowSolver:
    """Turns conditioning and noise into one patch.

    Args:
        spec: Sizes.
        estimator: ``flow.onnx``.
        time: ``flow_time.onnx``.
        condition: ``flow_condition.onnx``.
        steps: Euler steps, 2 or more.
        cfg: Guidance; at 1 the unguided half is not computed.
        even: Take the even schedule, see `Schedule.even`.
    """

    def __init__(
        self,
        spec: VoxCpm2Spec,
        estimator: Graph,
        time: Graph,
        condition: Graph,
        *,
        steps: int,
        cfg: float,
        even: bool = False,
    ) -> None:
        self._schedule = Schedule.even(steps) if even else Schedule.of(steps)
        self._cfg = np.float32(cfg)
        self._tokens = _time_tokens(time, self._schedule, spec.flow.mean_mode)
        size, width, hidden = spec.patch_size, spec.latent_dim, spec.flow.hidden
        batch = 1 if cfg == 1.0 else 2
        self._x = np.empty((1, size, width), np.float32)
        # The second batch row stays zero: that is the unguided half's conditioning.
        self._mu = np.zeros((batch, 2, hidden), np.float32)
        self._time = np.empty((1, 1, hidden), np.float32)
        self._cond = np.empty((1, size, width), np.float32)
        self._cond_tokens = np.empty((1, size, hidden), np.float32)
        self._velocity = np.empty((batch, size, width), np.float32)
        self._condition = condition.bind(fixed=True)
        self._condition.input("cond", self._cond)
        self._condition.output("cond_tokens", self._cond_tokens)
        self._estimator = estimator.bind(fixed=True)
        for name, array in (
            ("x", self._x),
            ("mu", self._mu),
            ("time_token", self._time),
            ("cond_tokens", self._cond_tokens),
        ):
            self._estimator.input(name, array)
        self._estimator.output("velocity", self._velocity)
        self.evaluations = 0

    def solve(
        self,
        mu: FloatArray,
        cond: FloatArray,
        noise: FloatArray,
        cancel: CancelToken | None = None,
    ) -> FloatArray | None:
        """Solve for one patch.

        Args:
            mu: Conditioning tokens [1, 2, hidden].
            cond: Previous patch [P, D].
            noise: Standard normal [D, P], the reference's layout.
            cancel: Checked before every evaluation.

        Returns:
            The patch [P, D], or None when cancelled.
        """
        self._mu[0] = mu[0]
        self._cond[0] = cond
        self._condition.run()
        x = noise.T.astype(np.float32)
        for step, dt in enumerate(self._schedule.dt):
            if step < self._schedule.zero_steps:
                continue
            if cancel is not None and cancel.cancelled:
                return None
            self._x[0] = x
            self._time[0, 0] = self._tokens[step]
            self._estimator.run()
            self.evaluations += 1
            x = x - dt * self._guided()
        return x

    def _guided(self) -> FloatArray:
        positive: FloatArray = self._velocity[0]
        if len(self._velocity) == 1:
            return positive
        negative = self._velocity[1]
        dot = np.vdot(positive, negative)
        share = dot / (np.vdot(negative, negative) + np.float32(1e-8))
        base = negative * share
        guided: FloatArray = base + self._cfg * (positive - base)
        return guided


def _time_tokens(graph: Graph, schedule: Schedule, mean_mode: bool) -> FloatArray:
    dt = schedule.dt if mean_mode else np.zeros_like(schedule.dt)
    return graph.run({"t": schedule.t, "dt": dt})["time_tokens"]


def _linspace_down(steps: int) -> FloatArray:
    """1 to 0 in f32, each half counted from its own end, as torch.linspace does."""
    step = np.float32(-1.0) / np.float32(steps)
    index = np.arange(steps + 1)
    from_start = np.float32(1) + step * index.astype(np.float32)
    from_end = -step * (steps - index).astype(np.float32)
    return np.where(index < (steps + 1) // 2, from_start, from_end).astype(np.float32)
