"""Binds a TCP socket, or says why it cannot be."""

from __future__ import annotations

import socket

from edge_runtime.errors import OutputError


def bind(host: str, port: int, options: str) -> socket.socket:
    """A listening socket.

    Args:
        host: Address or name.
        port: TCP port; 0 takes a free one.
        options: The options that say otherwise, for the remedy.

    Raises:
        OutputError: The address cannot be bound.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, proto)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise OutputError(
            f"{host}:{port} cannot be bound: {error.strerror or error}.",
            remedy=f"Give another {options}.",
        ) from error
    return listening
