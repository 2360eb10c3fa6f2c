"""The autoregressive loop: one patch per step, until the model stops or a limit does.

Source: `_inference` of `voxcpm2.py`, voxcpm 2.0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph
from edge_runtime.cancel import CancelToken
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.noise import Noise
from edge_runtime.speech import SpeechMetrics, SpeechOptions, StopReason
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.prompt import Prefix
from edge_runtime.voxcpm2.spec import VoxCpm2Spec

FloatArray = npt.NDArray[np.float32]
# Brings the LM to the end of a prefix; False when cancelled.
Prefill = Callable[[LanguageModel, Prefix, CancelToken], bool]
ReasonedPatch = tuple[FloatArray, StopReason]
ReasonedPatches = Generator[ReasonedPatch, None, None]


@dataclass(frozen=True)
class PatchLimit:
    """Most patches a run may take, and which limit that is."""

    patches: int
    reason: StopReason

    @staticmethod
    def of(options: SpeechOptions, target_tokens: int, free_rows: int) -> PatchLimit:
        """The tightest of all limits.

        Args:
            options: Holds ``max_len`` and the ratio of the cap.
            target_tokens: Tokens of the text to speak.
            free_rows: KV rows that the model has beyond the prefix; the last patch needs none.
        """
        limits: tuple[tuple[int, StopReason], ...] = (
            (int(target_tokens * options.retry_ratio + 10), "cap"),
            (options.max_len, "max_len"),
            (free_rows + 1, "kv_capacity"),
        )
        return PatchLimit(*min(limits, key=lambda limit: limit[0]))


class PatchDecoder:
    """Decodes one utterance to latent patches.

    Args:
        spec: Sizes.
        lm: The request's LM, not yet prefilled.
        solver: Flow solver.
        patch_encoder: ``patch_encoder.onnx``.
        metrics: Takes the times.
        guard: Asked after every patch.

    Attributes:
        stop_reason: Why `patches` ended, once it has.
        count: Patches so far.
    """

    def __init__(
        self,
        spec: VoxCpm2Spec,
        lm: LanguageModel,
        solver: FlowSolver,
        patch_encoder: Graph,
        metrics: SpeechMetrics,
        guard: MemoryGuard | None = None,
    ) -> None:
        self._guard = guard
        self._lm = lm
        self._solver = solver
        self._metrics = metrics
        self._shape = (spec.latent_dim, spec.patch_size)
        self._patch = np.empty((1, spec.patch_size, spec.latent_dim), np.float32)
        self._row = np.empty((1, 1, spec.hidden), np.float32)
        self._encoder = patch_encoder.bind(fixed=True)
        self._encoder.input("patches", self._patch)
        self._encoder.output("rows", self._row)
        self.stop_reason: StopReason = "cancelled"
        self.count = 0

    def patches(
        self,
        prefix: Prefix,
        prefill: Prefill,
        limit: PatchLimit,
        min_len: int,
        noise: Noise,
        cancel: CancelToken,
    ) -> ReasonedPatches:
        """Prefill, then yield patches [P, D] one by one, with the stop reason as it then stands.

        The step after a patch runs only when the next patch is asked for, so a patch leaves as
        soon as it is there.
        """
        with self._metrics.timed("prefill"):
            if not prefill(self._lm, prefix, cancel):
                return
        patch = prefix.last_patch
        while True:
            with self._metrics.timed("flow"):
                solved = self._solver.solve(
                    self._lm.output.mu, patch, noise.patch(self._shape), cancel
                )
            if solved is None:
                return
            patch = solved
            self.count += 1
            self._metrics.decoded_patches += 1
            # The stop head judges the rows before this patch, and the first min_len + 1 patches
            # are always spoken.
            stop = self.count - 1 > min_len and self._lm.output.stop
            if stop or self.count >= limit.patches:
                self.stop_reason = "stop" if stop else limit.reason
                yield patch, self.stop_reason
                return
            yield patch, self.stop_reason
            if cancel.cancelled:
                return
            if self._guard is not None:
                self._guard.check("Speaking")
            self._advance(patch)

    def _advance(self, patch: FloatArray) -> None:
        with self._metrics.timed("patch_encoder"):
            self._patch[0] = patch
            self._encoder.run()
        with self._metrics.timed("lm_step"):
            self._lm.step(self._row)
        self._metrics.kv_bytes = max(self._metrics.kv_bytes, self._lm.cache.nbytes)
