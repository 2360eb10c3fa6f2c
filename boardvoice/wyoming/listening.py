"""Binds the Wyoming server's socket, before anything is loaded."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import stat
from collections.abc import Iterator

from boardvoice.server.binding import bind
from boardvoice.wyoming.settings import WyomingSettings
from edge_runtime.errors import DependencyError, OutputError


@contextlib.contextmanager
def listening_socket(settings: WyomingSettings) -> Iterator[socket.socket]:
    """A bound socket; a Unix socket's file is taken away at the end.

    Raises:
        DependencyError: The extra is not installed.
        OutputError: The address cannot be bound.
    """
    for package, needed in (("wyoming", True), ("zeroconf", settings.announce)):
        if not needed:
            continue
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise DependencyError(
                f"Wyoming needs a package that cannot be imported: {error}.",
                remedy=f"pip install 'boardvoice[{package}]'",
            ) from error
    if settings.path is None:
        with bind(settings.host, settings.port, "--wyoming") as listening:
            yield listening
        return
    with _unix_socket(settings.path) as listening:
        try:
            yield listening
        finally:
            with contextlib.suppress(OSError):
                os.unlink(settings.path)


def address_of(settings: WyomingSettings, listening: socket.socket) -> str:
    """Where clients connect, as the package's clients take it."""
    if settings.path is not None:
        return f"unix://{settings.path}"
    host, port = listening.getsockname()[:2]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _unix_socket(path: str) -> socket.socket:
    family = getattr(socket, "AF_UNIX", None)
    if family is None:
        raise OutputError("There are no Unix sockets here.", remedy="Give a port.")
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        _drop_stale(path, family)
        listening.bind(path)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise OutputError(
            f"{path} cannot be made a socket: {error.strerror or error}.",
            remedy="Give another --wyoming.",
        ) from error
    return listening


def _drop_stale(path: str, family: int) -> None:
    """Remove a socket that a killed server left behind; nothing else, and none that answers."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(family, socket.SOCK_STREAM) as other:
        try:
            other.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
