"""Where the graphs of a loaded voice really run, and why one is not where it was meant to be."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from edge_runtime.npu.record import NpuRecord

_LOG = logging.getLogger("boardvoice")


@dataclass
class PlacementReport:
    """Filled while graphs are loaded.

    Attributes:
        places: Provider by graph.
        notes: What did not go as planned, each with its reason; logged when it is noted.
        npu: What became of the estimator on the NPU; None where it was not meant to be there.
    """

    places: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    npu: NpuRecord | None = None

    def placed(self, graph: str, provider: str) -> None:
        """A graph was loaded."""
        self.places[graph] = provider
        _LOG.info("%s runs on %s", graph, provider)

    def note(self, text: str) -> None:
        """Something to know; the same is said once."""
        if text not in self.notes:
            self.notes.append(text)
            _LOG.warning("%s", text)

    def refused(self, graph: str, provider: str, reason: str) -> None:
        """A graph that was meant for a provider does not run there."""
        self.note(f"{graph} does not run on {provider}: {reason.rstrip('.')}.")
