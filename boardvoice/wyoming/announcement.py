"""Tells the local network of the Wyoming server by mDNS, as Home Assistant looks for it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator

import psutil

from boardvoice.wyoming.settings import WyomingSettings

_LOG = logging.getLogger("boardvoice")
SERVICE = "_wyoming._tcp.local."


@contextlib.asynccontextmanager
async def announced(settings: WyomingSettings, listening: socket.socket) -> AsyncIterator[None]:
    """Announce the server while the context is entered, if that was asked for.

    A network that does not let it is no reason to end: it is logged.
    """
    if not settings.announce:
        yield
        return
    host, port = listening.getsockname()[:2]
    # Asking whether the name is free takes a second.
    task = asyncio.ensure_future(_announce(reachable(host), port))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _announce(addresses: list[str], port: int) -> None:
    try:
        async with announcement(addresses, port):
            await asyncio.Event().wait()
    except Exception as error:  # noqa: BLE001 - the package raises errors of many kinds
        _LOG.warning("The Wyoming server is not announced: %s", error or type(error).__name__)


@contextlib.asynccontextmanager
async def announcement(addresses: list[str], port: int) -> AsyncIterator[str]:
    """Announce a port on this machine's addresses; gives the name that was free.

    Raises:
        OSError: There is no network.
    """
    from zeroconf import IPVersion
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

    if not addresses:
        raise OSError("this machine has no address in a network")
    six = any(":" in address for address in addresses)
    four = any(":" not in address for address in addresses)
    versions = IPVersion.All if six and four else IPVersion.V6Only if six else IPVersion.V4Only
    host = socket.gethostname().partition(".")[0] or "board"
    info = AsyncServiceInfo(
        SERVICE,
        f"boardvoice {host}.{SERVICE}",
        port=port,
        parsed_addresses=addresses,
        server=f"{host}-boardvoice.local.",
    )
    zeroconf = AsyncZeroconf(interfaces=addresses, ip_version=versions)
    try:
        await (await zeroconf.async_register_service(info, allow_name_change=True))
        yield info.name
    finally:
        await zeroconf.async_close()


def reachable(host: str) -> list[str]:
    """Addresses by which others reach what is bound to a host."""
    bound = ipaddress.ip_address(host.partition("%")[0])
    if not bound.is_unspecified:
        return [str(bound)]
    found = []
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = ipaddress.ip_address(one.address.partition("%")[0])
            if address.version == 6 and bound.version == 4:
                continue
            if not (address.is_loopback or address.is_link_local):
                found.append(str(address))
    return found
