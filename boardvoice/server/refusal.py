"""Why a request gets no audio, in the JSON that OpenAI's clients read."""

from __future__ import annotations

import math
from typing import Any

from edge_runtime.errors import BoardvoiceError

_STATUS = {
    "usage": 400, "text": 400, "audio": 400, "capacity": 400, "output": 400, "voice": 400,
    "memory": 507,
}  # fmt: skip


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A request that is answered with a reason.

    Args:
        status: HTTP status.
        code: Stable machine-readable name.
        message: What is wrong and what to do.
        param: The field at fault.
        retry_after: Seconds after which it may work.
        headers: Further headers.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(math.ceil(retry_after), 1))

    @staticmethod
    def of(error: BaseException) -> Refusal:
        """The answer for an error of a run; what is no typed error tells no details."""
        if isinstance(error, Refusal):
            return error
        if isinstance(error, BoardvoiceError):
            return Refusal(_STATUS.get(error.code, 500), error.code, str(error))
        if isinstance(error, MemoryError):
            return Refusal(507, "memory", "An allocation failed. Give a shorter text.")
        return Refusal(500, "internal", "The server failed; its log says how.")

    def as_dict(self) -> dict[str, Any]:
        """OpenAI's error object."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {
            "error": {
                "message": self.message, "type": kind, "param": self.param, "code": self.code,
            }
        }  # fmt: skip
