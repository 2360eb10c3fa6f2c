"""What a stored voice may be called."""

from __future__ import annotations

import re

from edge_runtime.errors import VoiceError

# The model's own voice.
DEFAULT = "default"
# Clients that were made for OpenAI's service always name one of these.
OPENAI_VOICES = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
     "shimmer", "verse")
)  # fmt: skip
NAME_PATTERN = "[a-z0-9][a-z0-9_-]{0,63}"
_NAME = re.compile(NAME_PATTERN)


def is_name(name: str) -> bool:
    """Whether a stored voice may have this name."""
    return bool(_NAME.fullmatch(name)) and name != DEFAULT and name not in OPENAI_VOICES


def check_name(name: str) -> None:
    """Refuse what is no name; a name is part of a file's.

    Raises:
        VoiceError: It is none.
    """
    if not is_name(name):
        raise VoiceError(
            f"{name!r:.80} cannot be the name of a voice.",
            remedy="Use 1 to 64 of a-z, 0-9, - and _, a letter or digit first; 'default' and "
            "OpenAI's names are taken.",
        )
