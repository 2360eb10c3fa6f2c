"""What a run that has ended adds to the figures, whoever asked for it."""

from __future__ import annotations

from boardvoice.server.figures import Figures
from boardvoice.server.loaded_voice import LoadedVoice
from boardvoice.server.speech_run import SpeechRun


def account(run: SpeechRun, loaded: LoadedVoice, figures: Figures) -> None:
    """Count a run and what the guard did meanwhile."""
    loaded.count_guard_events()
    if run.stream is None:
        return
    metrics = run.stream.metrics
    figures.count("boardvoice_runs_total", f'reason="{metrics.stop_reason}"')
    if metrics.samples:
        figures.count("boardvoice_audio_seconds_total", value=metrics.audio_s)
        figures.see("boardvoice_first_audio_seconds", metrics.first_audio_ms / 1000)
        figures.see("boardvoice_run_seconds", metrics.wall_s)
        figures.see("boardvoice_rtf", metrics.wall_s / metrics.audio_s)
