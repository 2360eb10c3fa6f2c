"""Tells systemd how the server is, by datagrams to its socket.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_LOG = logging.getLogger("boardvoice")


class Notifier:
    """The way to the service manager; without one, nothing is sent.

    Args:
        address: Path of its socket, or an abstract name that begins with ``@``; empty for none.
        watchdog_s: Within so many seconds it wants to hear that all is well; None for never.

    Attributes:
        watchdog_s: As given.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._failed = False
        self.watchdog_s = watchdog_s

    @staticmethod
    def here(environment: Mapping[str, str] = os.environ) -> Notifier:
        """What the environment names: ``NOTIFY_SOCKET``, ``WATCHDOG_USEC``, ``WATCHDOG_PID``."""
        address = environment.get("NOTIFY_SOCKET", "")
        if address and address[0] not in "/@":
            _LOG.warning("NOTIFY_SOCKET is %r: only paths and abstract names are known.", address)
            address = ""
        return Notifier(address, _watchdog_s(environment) if address else None)

    @property
    def wanted(self) -> bool:
        """Whether there is somebody to tell."""
        return bool(self._address)

    def tell(self, *assignments: str) -> bool:
        """Send assignments such as ``READY=1`` in one datagram; waits for nobody.

        Returns:
            Whether they were sent. A full socket is no fault: say it again later.
        """
        if not self._address:
            return False
        # A line break would begin another assignment.
        text = "\n".join(one.replace("\n", " ") for one in assignments)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._failed:
                _LOG.warning("The service manager cannot be told: %s.", error.strerror or error)
            self._failed = True
            return False
        self._failed = False
        return True

    def loading(self, what: str, seconds: float) -> None:
        """Say what is done before the voice is there, and that it may take so long from now on."""
        self.tell(f"STATUS={what}", f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    micros, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    # Inherited from a parent that is the one to feed it.
    if pid and pid != str(os.getpid()):
        return None
    return int(micros) / 1e6 if micros.isdecimal() and int(micros) > 0 else None
