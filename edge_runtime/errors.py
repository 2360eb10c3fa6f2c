"""Every error a user can meet: what is wrong, where, what to do, and the exit code."""

from __future__ import annotations

from typing import ClassVar


class BoardvoiceError(Exception):
    """Base of all typed errors.

    Args:
        message: What is wrong and where, in one sentence.
        remedy: What the user can do about it, in one sentence.

    Attributes:
        code: Stable machine-readable name, also printed by ``--json``.
        exit_code: Process exit status that the command line uses for it.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    default_remedy: ClassVar[str] = ""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy or self.default_remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class UsageError(BoardvoiceError):
    """An option or argument that does not make sense."""

    code = "usage"
    exit_code = 2


class TextError(BoardvoiceError):
    """Text that cannot be spoken: empty, invalid Unicode, control characters, control tokens."""

    code = "text"
    exit_code = 3
    default_remedy = "Give text as UTF-8 with something to pronounce in it."


class AudioError(BoardvoiceError):
    """Reference or prompt audio that cannot be used."""

    code = "audio"
    exit_code = 4
    default_remedy = "Give a recording of speech, 50 ms to 60 s long, such as a WAV or FLAC file."


class BundleError(BoardvoiceError):
    """A bundle that is missing, torn, altered or of another version."""

    code = "bundle"
    exit_code = 5


class CheckpointError(BoardvoiceError):
    """A checkpoint that is missing, torn, or has a wrong config."""

    code = "checkpoint"
    exit_code = 6


class UnsupportedError(CheckpointError):
    """A checkpoint feature that this exporter refuses by name."""

    code = "unsupported"
    exit_code = 6


class CapacityError(BoardvoiceError):
    """A request that cannot fit: rows needed against rows there are."""

    code = "capacity"
    exit_code = 7


class DependencyError(BoardvoiceError):
    """An optional dependency that this request needs and that is not installed."""

    code = "dependency"
    exit_code = 8


class ProfileError(BoardvoiceError):
    """A device profile with an unknown name, key or value."""

    code = "profile"
    exit_code = 9


class BackendError(BoardvoiceError):
    """An execution provider that failed to load or run a graph."""

    code = "backend"
    exit_code = 10


class OutputError(BoardvoiceError):
    """A result that could not be written."""

    code = "output"
    exit_code = 11
    default_remedy = "Name a file in a folder that exists and can be written."


class MemoryBudgetError(BoardvoiceError):
    """Memory that a request needs and this process may not take.

    Args:
        message: What needed how much, and which limit leaves how much.
        remedy: What to do.
        needed: Bytes needed.
        available: Bytes available.
        limited_by: The limit, in words.
    """

    code = "memory"
    exit_code = 12

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        needed: int = 0,
        available: int = 0,
        limited_by: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.needed = needed
        self.available = available
        self.limited_by = limited_by


class PrepareError(BoardvoiceError):
    """A bundle that could not be prepared for this device."""

    code = "prepare"
    exit_code = 13


class SelfTestError(BoardvoiceError):
    """A device that does not compute what the exporter computed."""

    code = "selftest"
    exit_code = 14


class DoctorError(BoardvoiceError):
    """A device that cannot speak now."""

    code = "doctor"
    exit_code = 15
    default_remedy = "See the remedies above."


class ServiceError(BoardvoiceError):
    """A service of systemd that cannot be installed, removed or asked, or that does not run."""

    code = "service"
    exit_code = 16


class VoiceError(BoardvoiceError):
    """A stored voice that is not there, is there already, is torn or cannot be kept."""

    code = "voice"
    exit_code = 17
    default_remedy = "See 'boardvoice voices list'."


class CancelledError(BoardvoiceError):
    """A run that was cancelled before it had anything to return."""

    code = "cancelled"
    exit_code = 130
