"""What goes wrong with the toolkit."""

from __future__ import annotations

from typing import ClassVar

from edge_runtime.errors import BackendError


class ToolkitError(BackendError):
    """rknn-toolkit2 is missing, refused, took too long or died.

    Args:
        message: What is wrong, in one sentence.
        reason: ``missing``, ``refused``, ``timeout``, ``died``, ``operators``, ``files`` or
            ``install``.
        remedy: What the user can do about it.
    """

    code: ClassVar[str] = "rknn-toolkit"

    def __init__(self, message: str, *, reason: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.reason = reason
