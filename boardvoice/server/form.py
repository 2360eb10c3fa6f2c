"""Reads a multipart form that is in memory already, whole and bounded. Strict: RFC 7578."""

from __future__ import annotations

import re
from dataclasses import dataclass

from boardvoice.server.refusal import Refusal

_MOST_PARTS = 8
_MOST_HEAD = 4096
_BOUNDARY = re.compile(
    r"multipart/form-data\s*;(?:[^\"]*;)?\s*boundary=(?:\"([^\"]{1,70})\"|([^\s;\",]{1,70}))\s*(?:;.*)?",
    re.IGNORECASE,
)
_NAME = re.compile(r'form-data\s*;(?:.*;)?\s*name="([^"]{1,64})"', re.IGNORECASE)
_FILE = re.compile(r";\s*filename\*?=", re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """One field.

    Attributes:
        data: Its bytes.
        is_file: Whether a file name came with it. What the name is does not matter here.
    """

    data: memoryview
    is_file: bool

    def text(self, name: str, most: int) -> str:
        """The field as text.

        Raises:
            Refusal: It is a file, longer than ``most`` characters, or no UTF-8.
        """
        try:
            if self.is_file or len(self.data) > 4 * most:
                raise ValueError
            text = bytes(self.data).decode()
        except ValueError as error:
            raise bad_field(name, f"it must be text of {most} characters at most") from error
        if len(text) > most:
            raise bad_field(name, f"it has {len(text)} characters; the limit is {most}")
        return text


def parse_form(content_type: str, body: bytes, known: tuple[str, ...]) -> dict[str, Part]:
    """The fields of a form.

    Args:
        content_type: The request's header.
        body: All of the body.
        known: Names that fields may have.

    Raises:
        Refusal: No such form, a field that is unknown or comes twice.
    """
    found = _BOUNDARY.fullmatch(content_type.strip())
    if found is None:
        raise Refusal(415, "unsupported_media_type", "The body must be multipart/form-data.")
    line = b"--" + (found[1] or found[2]).encode("latin-1", "replace")
    if not body.startswith(line):
        raise _broken("it does not begin with its boundary")
    fields: dict[str, Part] = {}
    at, view = len(line), memoryview(body)
    for _ in range(_MOST_PARTS + 1):
        if body[at : at + 2] == b"--":
            return fields
        head_end = body.find(b"\r\n\r\n", at, at + _MOST_HEAD)
        if body[at : at + 2] != b"\r\n" or head_end < 0:
            raise _broken("a part has no header")
        end = body.find(b"\r\n" + line, head_end + 2)
        if end < 0:
            raise _broken("its last boundary is missing")
        name, is_file = _described(body[at + 2 : head_end])
        if name not in known:
            raise bad_field(name, f"there are only {', '.join(known)}")
        if name in fields:
            raise bad_field(name, "it comes twice")
        fields[name] = Part(view[min(head_end + 4, end) : end], is_file)
        at = end + 2 + len(line)
    raise _broken(f"it has more than {_MOST_PARTS} parts")


def bad_field(name: str, why: str) -> Refusal:
    """A field that cannot be taken."""
    return Refusal(400, "invalid_value", f"{name}: {why}.", param=name)


def _described(head: bytes) -> tuple[str, bool]:
    disposition = ""
    for line in head.decode("utf-8", "replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            disposition = value.strip()
        elif key.strip().lower() == "content-transfer-encoding" and value.strip().lower() not in (
            "binary", "8bit", "7bit",
        ):  # fmt: skip
            raise _broken("a part is encoded")
    found = _NAME.match(disposition)
    if found is None:
        raise _broken("a part has no name")
    return found[1], bool(_FILE.search(disposition))


def _broken(why: str) -> Refusal:
    return Refusal(400, "invalid_value", f"The form cannot be read: {why}.")
