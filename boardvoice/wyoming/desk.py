"""What all connections of the Wyoming server share."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from boardvoice.server.figures import Figures
from boardvoice.server.loaded_voice import LoadedVoice
from boardvoice.server.refusal import Refusal
from boardvoice.server.settings import ServerSettings
from boardvoice.server.turns import Turns
from boardvoice.wyoming.framing import bad_event
from boardvoice.wyoming.settings import WyomingSettings
from edge_runtime.voices.names import DEFAULT

PROGRAM = "boardvoice"
_NAME_CHARS = 256


@dataclass(frozen=True)
class Desk:
    """The voice, its limits and its turns: those of the HTTP server.

    Attributes:
        loaded: The voice.
        turns: Who speaks next.
        limits: Limits of the server.
        settings: What is Wyoming's own.
        figures: Takes what happened.
    """

    loaded: LoadedVoice
    turns: Turns
    limits: ServerSettings
    settings: WyomingSettings
    figures: Figures

    def info(self) -> Any:
        """The ``info`` event.

        Raises:
            Refusal: The voice is still loading; a client would keep what it is told now.
        """
        from wyoming.info import Attribution, Info, TtsProgram, TtsVoice

        manifest = self.loaded.voice().manifest
        maker = Attribution(*self.settings.maker)
        voices = [
            TtsVoice(
                name=name, attribution=maker, installed=True, version=manifest.made_by,
                description=manifest.name if name == DEFAULT else name,
                languages=list(self.settings.languages),
            )
            for name in self.loaded.voices()
        ]  # fmt: skip
        program = TtsProgram(
            name=PROGRAM, attribution=Attribution(PROGRAM, ""), installed=True,
            description=f"boardvoice, {manifest.name}", version=version("boardvoice"),
            voices=voices, supports_synthesize_streaming=True,
        )  # fmt: skip
        return Info(tts=[program]).event()

    def voice_name(self, data: dict[str, Any]) -> str:
        """The voice that a request names; its language is left to the text.

        Raises:
            Refusal: There is none of that name, the request is wrong, or the voice is loading.
        """
        self.loaded.voice()
        wanted, text_format = data.get("voice"), data.get("text_format")
        if text_format not in (None, "text"):
            raise Refusal(400, "unsupported_text_format", "Only plain text can be spoken.")
        if wanted is None:
            return DEFAULT
        name = wanted.get("name") if isinstance(wanted, dict) else wanted
        if isinstance(wanted, dict) and name is None:
            return DEFAULT
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARS:
            raise bad_event("The voice must be an object with a name.")
        self.loaded.reference(name)
        return name


def text_of(data: dict[str, Any]) -> str:
    """The text of a request.

    Raises:
        Refusal: There is none.
    """
    text = data.get("text")
    if not isinstance(text, str):
        raise bad_event("The event needs a text.")
    return text
