"""Where the Wyoming server listens, and what it says of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

from boardvoice.server.settings import is_loopback
from edge_runtime.errors import UsageError

DEFAULT_PORT = 10200
# What OpenBMB names for VoxCPM2 on its model card.
VOXCPM2_LANGUAGES = tuple(
    "en ar da de el es fi fr he hi id it ja km ko lo ms my nl no pl pt ru sv sw th tl tr vi zh".split()  # noqa: SIM905, E501
)
_UNIX = "unix:"
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*")


@dataclass(frozen=True)
class WyomingSettings:
    """How to serve Wyoming. The other limits are those of `ServerSettings`.

    Attributes:
        host: Address or name to bind.
        port: TCP port; 0 takes a free one.
        path: Unix socket to make instead, or None.
        everyone: Whether other machines may connect; the protocol knows no token.
        idle_s: A connection on which nothing is asked for so long is closed, in seconds.
        announce: Whether to announce it by mDNS.
        languages: Codes of the languages that the voices are listed under.
        maker: Who made the voice, and where from.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    path: str | None = None
    everyone: bool = False
    idle_s: float = 120.0
    announce: bool = False
    languages: tuple[str, ...] = VOXCPM2_LANGUAGES
    maker: tuple[str, str] = ("OpenBMB", "https://github.com/OpenBMB/VoxCPM")

    def __post_init__(self) -> None:
        for name, low, high in (("port", 0, 65535), ("idle_s", 0.1, 86_400)):
            if not low <= getattr(self, name) <= high:
                raise UsageError(
                    f"Wyoming's {name} is {getattr(self, name)!r}.",
                    remedy=f"It must be {low} to {high}.",
                )
        if not self.languages or not all(map(_LANGUAGE.fullmatch, self.languages)):
            raise UsageError(
                f"The languages are {','.join(self.languages)!r}.",
                remedy="Give codes with commas between them, such as en,de.",
            )
        if not self.on_this_machine and not self.everyone:
            raise UsageError(
                f"{self.host} can be reached from other machines, and Wyoming has no token: "
                "whoever reaches it may speak.",
                remedy="Add --wyoming-open if that network is trusted, or bind to 127.0.0.1.",
            )
        if self.announce and self.on_this_machine:
            raise UsageError(
                "Other machines would be told of an address that only this one can reach.",
                remedy="Bind --wyoming to an address of the network, or leave --zeroconf out.",
            )

    @property
    def on_this_machine(self) -> bool:
        """Whether only this machine can connect."""
        return self.path is not None or is_loopback(self.host)


def parse_address(address: str) -> dict[str, str | int]:
    """``PORT``, ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``, as fields of `WyomingSettings`.

    Raises:
        UsageError: It is none of these.
    """
    if address.startswith(_UNIX) and len(address) > len(_UNIX):
        return {"path": address[len(_UNIX) :]}
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # Without brackets nobody can tell where an IPv6 address ends.
    if not (port.isascii() and port.isdigit() and len(port) <= 5) or (":" in bare and bare == host):
        raise UsageError(
            f"--wyoming is {address!r}.",
            remedy="It must be PORT, HOST:PORT or unix:PATH; write BUNDLE before it.",
        )
    return {"port": int(port), **({"host": bare} if bare else {})}
