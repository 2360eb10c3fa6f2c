"""The syntax of unit files: words, paths and sections as systemd reads them back.

Source: systemd.syntax(7), systemd.service(5) "Command lines", systemd.unit(5) "Specifiers".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from edge_runtime.errors import UsageError

# A setting, or a comment where the name is empty.
Entry = tuple[str, str]


def word(text: str) -> str:
    """One word of a setting, in quotes: spaces, quotes, backslashes and percent signs stay.

    Raises:
        UsageError: A line break or another control character, which no unit can hold safely.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise UsageError(
            f"{text!r} holds a control character.", remedy="Rename the file, or leave it out."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{text!r} is no UTF-8.", remedy="Rename the file: unit files are UTF-8."
        ) from error
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if escaped == "" or set(escaped) & set(" \"'\\;") else escaped


def words(texts: Iterable[str]) -> str:
    """A list of words."""
    return " ".join(map(word, texts))


def paths(files: Iterable[Path]) -> str:
    """A list of paths, each of which may hold a colon."""
    return " ".join(
        word(str(file)) if ":" not in str(file) else _in_quotes(str(file)) for file in files
    )


def rest_of_line(text: str) -> str:
    """Text that is the rest of a setting's line, which systemd takes without quotes.

    Raises:
        UsageError: A control character, blanks at an end, or a backslash at the end.
    """
    word(text)
    if text != text.strip() or text.endswith("\\"):
        raise UsageError(
            f"{text!r} begins or ends with a blank or a backslash.", remedy="Rename the file."
        )
    return text.replace("%", "%%")


def command_line(command: Sequence[str]) -> str:
    """A command of ``ExecStart=``; dollar signs stay what they are, too.

    Raises:
        UsageError: A program in whose path systemd takes no such character.
    """
    if set(command[0]) & set("\"'\\"):
        raise UsageError(
            f"systemd starts no program whose path is {command[0]}.",
            remedy="Install boardvoice in a folder without quotes and backslashes in its name.",
        )
    return ":" + words(command)


def environment(name: str, value: str) -> str:
    """A variable of ``Environment=``; specifiers such as ``%S`` must be in place already."""
    return f'"{name}={value}"'


def section(name: str, entries: Iterable[Entry]) -> str:
    """A section; an entry without a name is a comment."""
    lines = [f"# {text}" if not key else f"{key}={text}" for key, text in entries]
    return "\n".join([f"[{name}]", *lines, ""])


def _in_quotes(text: str) -> str:
    quoted = word(text)
    return quoted if quoted.startswith('"') else f'"{quoted}"'
