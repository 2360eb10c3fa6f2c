"""The voice behind the server: loaded in the background, with the references it speaks with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from boardvoice.server.figures import Figures
from boardvoice.server.refusal import Refusal
from edge_runtime.audio.load import AudioSource
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.npu.record import NpuRecord
from edge_runtime.voice import Voice
from edge_runtime.voices.names import DEFAULT, OPENAI_VOICES
from edge_runtime.voices.store import VoiceStore
from edge_runtime.voices.stored_voice import StoredVoice

OPENAI_MODELS = frozenset({"tts-1", "tts-1-hd", "gpt-4o-mini-tts", DEFAULT})


class LoadedVoice:
    """Loads in a thread of its own; asked for a voice meanwhile, it refuses.

    Args:
        load: Loads the bundle.
        references: Audio to speak with, by voice name.
        figures: Takes the guard's events.
        store: Voices that were added; this device's unless given.

    Attributes:
        store: The store.
        error: Why loading failed.
    """

    def __init__(
        self,
        load: Callable[[], Voice],
        references: Mapping[str, AudioSource],
        figures: Figures,
        store: VoiceStore | None = None,
    ) -> None:
        self._load = load
        self._references = dict(references)
        self._figures = figures
        self.store = store or VoiceStore()
        self._voice: Voice | None = None
        self._last_event = 0.0
        self.error: BaseException | None = None

    def start(self, failed: Callable[[], None]) -> None:
        """Begin to load; ``failed`` is called from the thread when that fails."""

        def work() -> None:
            try:
                self.store.tidy()
                self._voice = self._load()
            except BaseException as error:  # noqa: BLE001 - raised again by who started the server
                self.error = error
                failed()

        threading.Thread(target=work, name="boardvoice-load", daemon=True).start()

    @property
    def ready(self) -> bool:
        """Whether it is loaded."""
        return self._voice is not None

    def voice(self) -> Voice:
        """The voice.

        Raises:
            Refusal: It is still loading.
        """
        if self._voice is None:
            raise Refusal(503, "loading", "The voice is still loading.", retry_after=2)
        return self._voice

    def voices(self) -> list[str]:
        """Names that can be asked for."""
        stored = {voice.name for voice in self.store.voices()}
        return [DEFAULT, *sorted(stored | set(self._references))]

    def is_fixed(self, name: str) -> bool:
        """Whether a voice came with the server's start, and stays."""
        return name in self._references or name == DEFAULT or name in OPENAI_VOICES

    def reference(self, name: str) -> AudioSource | StoredVoice | None:
        """What a voice speaks with; None for the model's own. Names are looked up, never opened.

        Raises:
            Refusal: There is no such voice.
        """
        if name in self._references:
            return self._references[name]
        if name == DEFAULT or name in OPENAI_VOICES:
            return None
        if (stored := self.store.find(name)) is not None:
            return stored
        raise Refusal(
            400, "voice_not_found", f"There is no voice of that name. See /v1/voices: "
            f"{', '.join(self.voices())}.", param="voice",
        )  # fmt: skip

    def check_model(self, name: str) -> None:
        """See that a request means this model.

        Raises:
            Refusal: It names another one.
        """
        known = self.voice().manifest.name
        if name != known and name not in OPENAI_MODELS:
            raise Refusal(
                404, "model_not_found", f"There is no such model here, only {known}.", param="model"
            )

    def gauges(self) -> dict[str, dict[str, float]]:
        """Memory as it stands; counts the guard's new events on the way."""
        memory = ProcessMemory.read()
        kinds: dict[str, float] = {
            'kind="anonymous"': memory.anonymous, 'kind="file"': memory.file,
        }  # fmt: skip
        gauges = {"boardvoice_ready": {"": float(self.ready)}, "boardvoice_memory_bytes": kinds}
        if self._voice is not None:
            kinds['kind="kv"'] = self._voice.kv_bytes()
            guard = self._voice.resources.guard
            if (tightest := guard.tightest()) is not None:
                gauges["boardvoice_memory_available_bytes"] = {"": tightest.available}
            self.count_guard_events()
            gauges |= _npu_gauges(self._voice.resources.placement.npu)
        return gauges

    def count_guard_events(self) -> None:
        """Count what the guard did since the last look."""
        if self._voice is None:
            return
        for event in list(self._voice.resources.guard.events):
            if event.seconds > self._last_event:
                self._last_event = event.seconds
                self._figures.count("boardvoice_guard_events_total", f'kind="{event.kind}"')


def _npu_gauges(npu: NpuRecord | None) -> dict[str, dict[str, float]]:
    if npu is None:
        return {}
    return {
        "boardvoice_npu_in_use": {f'place="{npu.place}"': float(npu.in_use)},
        "boardvoice_npu_given_up": {f'reason="{npu.reason}"': 1.0} if npu.reason else {},
        "boardvoice_npu_evaluations_total": {
            'on="npu"': npu.evaluations, 'on="cpu"': npu.cpu_evaluations,
        },
    }  # fmt: skip
