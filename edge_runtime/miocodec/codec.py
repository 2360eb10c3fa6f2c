"""The codec: speech to content tokens and a voice, and back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from edge_runtime.affinity import on_cores
from edge_runtime.bundle import MANIFEST, Bundle, describe_errors
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import BundleError
from edge_runtime.loader import LoadOptions, open_device
from edge_runtime.miocodec.content import ContentEncoder
from edge_runtime.miocodec.largest_inputs import estimated_workspaces, run_bytes
from edge_runtime.miocodec.spec import GraphName, MioCodecSpec
from edge_runtime.miocodec.wave import WaveDecoder
from edge_runtime.resources import Resources

FloatArray = npt.NDArray[np.float32]

FAMILY = "miocodec"


class Codec:
    """A loaded codec. Get one from `Codec.load`.

    One run at a time: a second thread waits for the first one's run to end.

    Args:
        bundle: An opened bundle of this family.
        resources: The device.

    Raises:
        BundleError: The description is wrong.
        BackendError: A graph cannot be loaded.
        MemoryBudgetError: There is no room for the graphs.
    """

    def __init__(self, bundle: Bundle, resources: Resources) -> None:
        try:
            self.spec = MioCodecSpec.model_validate(bundle.manifest.model)
        except ValidationError as error:
            raise BundleError(
                f"{bundle.folder / MANIFEST}: model: {describe_errors(error)}.",
                remedy="Export it again.",
            ) from error
        self.bundle = bundle
        self.resources = resources
        self._lock = threading.Lock()
        resources.estimates.update(estimated_workspaces(self.spec))
        with on_cores(resources.runtime.cores):
            graphs = {name: resources.load(bundle, file) for name, file in self.spec.graphs.items()}
        self._decoder = WaveDecoder(graphs, self.spec, self._look)
        self.content = ContentEncoder(graphs, self.spec, self._look)

    @staticmethod
    def load(bundle: str | Path, **options: Any) -> Codec:
        """Load a bundle that `boardvoice export miocodec` wrote.

        Args:
            bundle: Its folder.
            **options: As `edge_runtime.loader.LoadOptions` has them.

        Raises:
            BundleError: Missing, torn or altered bundle, or one of another family.
            ProfileError: Unknown or wrong profile.
            BackendError: A graph cannot be loaded.
            MemoryBudgetError: There is no room for it.
        """
        opened, resources = open_device(bundle, LoadOptions(**options))
        if opened.manifest.family != FAMILY:
            raise BundleError(
                f"{opened.folder} is a bundle of {opened.manifest.family}, not a codec.",
                remedy="Name a bundle that 'boardvoice export miocodec' wrote.",
            )
        return Codec(opened, resources)

    @property
    def sample_rate(self) -> int:
        """Samples per second of what is encoded and decoded."""
        return self.spec.sample_rate

    def decode(
        self,
        tokens: npt.NDArray[np.integer],
        voice: FloatArray,
        *,
        samples: int | None = None,
        cancel: CancelToken | None = None,
    ) -> FloatArray:
        """Decode a clip.

        Args:
            tokens: Content tokens [N].
            voice: Global embedding f32 [width].
            samples: Length of the clip that the tokens were made of, if it is known; the result
                is that, rounded down to whole decoder frames.
            cancel: Looked at between runs.

        Returns:
            f32 [n], about within ±1.

        Raises:
            UsageError: Tokens, voice or length that are none.
            CapacityError: A clip of more than 10 minutes.
            CancelledError: Cancelled.
            MemoryBudgetError: There is no room for it.
        """
        return np.concatenate(list(self.pieces(tokens, voice, samples=samples, cancel=cancel)))

    def pieces(
        self,
        tokens: npt.NDArray[np.integer],
        voice: FloatArray,
        *,
        samples: int | None = None,
        cancel: CancelToken | None = None,
    ) -> Iterator[FloatArray]:
        """Decode a clip and hand out its samples as the last graph makes them.

        They are those of `decode`, bit for bit. Arguments and errors are the same.
        """
        with self._lock:
            yield from self._decoder.pieces(tokens, voice, samples=samples, cancel=cancel)

    def _look(self, name: GraphName, rows: int) -> None:
        """Ask the guard before a run."""
        cost = self.resources.cost(self.bundle, self.spec.graphs[name])
        self.resources.guard.check(f"Running {name}", run_bytes(cost, rows))
