"""The body of a request for speech: OpenAI's fields, and a few of our own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from boardvoice.server.refusal import Refusal
from edge_runtime.errors import TextError
from edge_runtime.speech import SpeechOptions
from edge_runtime.text.normalize import normalize_text

AudioFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
_Name = Annotated[str, Field(min_length=1, max_length=256)]


class VoiceId(BaseModel):
    """A voice as an object."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: _Name


class SpeechBody(BaseModel):
    """What to say and how. Fields without a description are OpenAI's."""

    model_config = ConfigDict(extra="forbid", strict=True)
    input: str
    model: _Name = "default"
    voice: _Name | VoiceId = "default"
    instructions: str | None = Field(None, description="Voice design, such as 'a calm old man'.")
    response_format: AudioFormat = "mp3"
    speed: float = Field(1.0, ge=0.25, le=4.0)
    stream_format: Literal["audio", "sse"] = "audio"
    user: _Name | None = Field(
        None, description="Session: a newer request of the same one cancels the older."
    )
    sample_rate: int | None = Field(
        None, ge=8000, le=48000,
        description="In Hz; by default 24000 in pcm and the model's own rate otherwise.",
    )  # fmt: skip
    seed: int | None = Field(None, ge=0, le=2**63 - 1, description="Same seed, same audio.")
    preset: Literal["quality", "balanced", "fast"] = "quality"

    @staticmethod
    def parse(body: bytes, max_chars: int) -> SpeechBody:
        """Read a body.

        Raises:
            Refusal: No JSON object, a wrong field, or more text than is allowed.
        """
        try:
            parsed = SpeechBody.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or None
            raise Refusal(
                400, "invalid_value", f"{where or 'The body'}: {first['msg']}.", param=where
            ) from error
        for name in ("input", "instructions"):
            length = len(getattr(parsed, name) or "")
            if length > max_chars:
                raise Refusal(
                    400, "string_above_max_length",
                    f"{name} has {length} characters; the limit is {max_chars}. Send it in parts.",
                    param=name,
                )  # fmt: skip
        return parsed

    @property
    def voice_name(self) -> str:
        """Name of the voice."""
        return self.voice if isinstance(self.voice, str) else self.voice.id

    def text(self) -> str:
        """The text, led by its voice design.

        Raises:
            TextError: Nothing to say, or nothing in the design.
        """
        words = normalize_text(self.input)
        if self.instructions is None or not self.instructions.strip():
            return words
        design = normalize_text(self.instructions)
        if any(bracket in design for bracket in "()（）"):
            raise TextError("instructions hold parentheses.", remedy="Describe the voice in words.")
        return f"({design}){words}"

    def options(self) -> SpeechOptions:
        """How to speak."""
        return SpeechOptions(seed=self.seed, preset=self.preset)
