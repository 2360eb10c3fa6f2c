"""Figures of the server in Prometheus' text format."""

from __future__ import annotations

import threading
from collections import defaultdict

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_RATIOS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)
_HELP = {
    "boardvoice_requests_total": "Requests for speech answered, by HTTP status.",
    "boardvoice_refusals_total": "Requests for speech refused, by reason.",
    "boardvoice_runs_total": "Runs ended, by stop reason.",
    "boardvoice_audio_seconds_total": "Seconds of audio spoken.",
    "boardvoice_guard_events_total": "What the memory guard did, by kind.",
    "boardvoice_queue_waiting": "Requests that wait for their turn.",
    "boardvoice_running": "Requests that run.",
    "boardvoice_wyoming_requests_total": "Requests over Wyoming, by result.",
    "boardvoice_ready": "Whether the voice is loaded.",
    "boardvoice_memory_bytes": "Memory of this process, by kind.",
    "boardvoice_memory_available_bytes": "What the tightest limit leaves.",
    "boardvoice_npu_in_use": "Whether the NPU computes the flow estimator, by place.",
    "boardvoice_npu_given_up": "Why it does not although it was meant to, by reason.",
    "boardvoice_npu_evaluations_total": "Evaluations of the flow, on the NPU and in its stead.",
    "boardvoice_queue_seconds": "Wait for a turn.",
    "boardvoice_first_audio_seconds": "From the start of a run to its first samples.",
    "boardvoice_run_seconds": "Time of a run.",
    "boardvoice_rtf": "Real-time factor of a run: its time over its audio.",
}
_BOUNDS = {
    "boardvoice_queue_seconds": _SECONDS,
    "boardvoice_first_audio_seconds": _SECONDS,
    "boardvoice_run_seconds": _SECONDS,
    "boardvoice_rtf": _RATIOS,
}


class Figures:
    """Counters and histograms; safe from any thread. Names are those of docs/serve.md."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, float]] = defaultdict(dict)
        self._seen: dict[str, list[float]] = {
            name: [0.0] * (len(bounds) + 2) for name, bounds in _BOUNDS.items()
        }

    def count(self, name: str, label: str = "", value: float = 1.0) -> None:
        """Add to a counter; ``label`` is ``name="value"`` or empty."""
        with self._lock:
            counts = self._counts[name]
            counts[label] = counts.get(label, 0.0) + value

    def see(self, name: str, value: float) -> None:
        """Add a value to a histogram."""
        with self._lock:
            seen = self._seen[name]
            for index, bound in enumerate(_BOUNDS[name]):
                seen[index] += value <= bound
            seen[-2] += 1
            seen[-1] += value

    def text(self, gauges: dict[str, dict[str, float]]) -> str:
        """Everything, with gauges as they stand now: by name, then by label."""
        lines: list[str] = []
        with self._lock:
            for name, values in (*self._counts.items(), *gauges.items()):
                kind = "counter" if name.endswith("_total") else "gauge"
                lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {kind}"]
                for label, value in sorted(values.items()):
                    lines.append(
                        f"{name}{{{label}}} {_figure(value)}"
                        if label
                        else f"{name} {_figure(value)}"
                    )
            for name, seen in self._seen.items():
                lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} histogram"]
                for bound, value in zip(_BOUNDS[name], seen, strict=False):
                    lines.append(f'{name}_bucket{{le="{bound:g}"}} {value:g}')
                lines.append(f'{name}_bucket{{le="+Inf"}} {_figure(seen[-2])}')
                lines += [f"{name}_sum {_figure(seen[-1])}", f"{name}_count {_figure(seen[-2])}"]
        return "\n".join(lines) + "\n"


def _figure(value: float) -> str:
    """All digits: bytes have more than ``g`` prints."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
