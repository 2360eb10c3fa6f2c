"""What the server listens on and how much it lets in."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from edge_runtime.errors import UsageError

_LEAST_TOKEN = 8


@dataclass(frozen=True)
class ServerSettings:
    """How to serve.

    Attributes:
        host: Address or name to bind.
        port: TCP port; 0 takes a free one.
        token: Bearer token that requests must show; None for none, on loopback only.
        queue: Most requests that wait for their turn; one runs.
        deadline_s: Longest wait for a turn, in seconds.
        max_chars: Longest text, in characters; instructions may have as many.
        receive_s: Time for a request to arrive, headers and body each, in seconds.
        stall_s: A client that takes nothing for so long is dropped, in seconds.
        grace_s: Time that runs get to end after SIGTERM, in seconds.
        connections: Most connections at once.
        progress_s: A run without progress for so long hangs, in seconds.
        upload_bytes: Largest recording that may be sent for a new voice.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    queue: int = 4
    deadline_s: float = 30.0
    max_chars: int = 4096
    receive_s: float = 10.0
    stall_s: float = 30.0
    grace_s: float = 10.0
    connections: int = 64
    progress_s: float = 120.0
    upload_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        for name, low, high in (
            ("port", 0, 65535), ("queue", 0, 1000), ("deadline_s", 0, 3600),
            ("max_chars", 1, 1_000_000), ("receive_s", 0.1, 3600), ("stall_s", 0.1, 3600),
            ("grace_s", 0, 3600), ("connections", 1, 10_000),
            ("progress_s", 1, 3600),
            ("upload_bytes", 1 << 10, 1 << 30),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}.", remedy=f"It must be {low} to {high}."
                )
        if self.token is None and not self.on_loopback:
            raise UsageError(
                f"{self.host} can be reached from other machines, and there is no token.",
                remedy="Set BOARDVOICE_TOKEN or --token-file, or bind to 127.0.0.1.",
            )
        if self.token is not None and (
            len(self.token) < _LEAST_TOKEN
            or not self.token.isascii()
            or not self.token.isprintable()
        ):
            raise UsageError(
                "The token cannot be used.",
                remedy=f"It must be {_LEAST_TOKEN} or more printable ASCII characters.",
            )

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def max_body_bytes(self) -> int:
        """Largest body: every character of text and instructions as an escaped pair, and names."""
        return 24 * self.max_chars + (16 << 10)


def is_loopback(host: str) -> bool:
    """Whether a host, as in a URL, is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
