"""What tuning found, as it is kept in the state folder."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from device_profiles.cores import usable_cores
from edge_runtime.atomic import atomic_file, try_file
from edge_runtime.errors import OutputError
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.runtime_choice import RuntimeChoice

FOLDER = "tuned"
FORMAT = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TunedRuntime(_Frozen):
    """Settings that were measured.

    Attributes:
        threads: Threads per session.
        spinning: Whether threads spin between the nodes of a run.
        overlap_vae: Whether audio is decoded while the next patch is computed.
        cores: CPUs they run on; empty for all.
    """

    threads: int = Field(ge=1, le=1024)
    spinning: bool
    overlap_vae: bool
    cores: tuple[int, ...] = ()

    @staticmethod
    def of(choice: RuntimeChoice) -> TunedRuntime:
        """The settings of a choice."""
        return TunedRuntime(
            threads=choice.threads,
            spinning=choice.spinning,
            overlap_vae=choice.overlap_vae,
            cores=choice.cores,
        )

    def choice(self) -> RuntimeChoice:
        """As loading takes it."""
        return RuntimeChoice(
            threads=self.threads,
            spinning=self.spinning,
            overlap_vae=self.overlap_vae,
            cores=self.cores,
            source="tuned",
        )


class Trial(_Frozen):
    """One candidate beside the best one so far, in alternating runs.

    Attributes:
        candidate: What was tried.
        beside: What it was compared with.
        patch_ms: Its wall time per patch, median.
        cpu_s_per_patch: Its CPU time per patch, median.
        beside_patch_ms: That of what it was compared with.
        beside_cpu_s_per_patch: Likewise.
        ratio: Median of the rounds' ratios of wall time, candidate over the other.
        cpu_ratio: The same of CPU time.
        rounds: Rounds.
        taken: Whether it took the other's place.
    """

    candidate: TunedRuntime
    beside: TunedRuntime
    patch_ms: float
    cpu_s_per_patch: float
    beside_patch_ms: float
    beside_cpu_s_per_patch: float
    ratio: float
    cpu_ratio: float
    rounds: int
    taken: bool


class Tuned(_Frozen):
    """One file in the state folder. It is good for exactly one key.

    Attributes:
        format: Version of this layout.
        taken: Date, UTC.
        bundle: SHA-256 of the manifest.
        cpu: SHA-256 of the machine type and the CPU's feature flags.
        runtime: ONNX Runtime's version and provider.
        kv_dtype: Storage of keys and values that it was measured with.
        cpus: CPUs that the process might use.
        start: What the profile says.
        choice: What is used from now on.
        trials: What was measured, in order.
    """

    format: Literal[1] = 1
    taken: str
    bundle: str
    cpu: str
    runtime: str
    kv_dtype: str
    cpus: tuple[int, ...]
    start: TunedRuntime
    choice: TunedRuntime
    trials: tuple[Trial, ...]

    def fits(self, key: PreparationKey) -> bool:
        """Whether it was measured with this bundle, on this device, as it is now."""
        own = (self.bundle, self.cpu, self.runtime, self.kv_dtype, self.cpus)
        return own == (key.bundle, key.cpu, key.runtime, key.kv_dtype, usable_cores())


def find_tuned(key: PreparationKey, state: Path) -> Tuned | None:
    """What tuning found for this bundle on this device; None if it was never tuned."""
    try:
        found = Tuned.model_validate_json(_file(key, state).read_bytes())
    except (OSError, ValidationError):
        return None
    return found if found.fits(key) else None


def keep_tuned(tuned: Tuned, key: PreparationKey, state: Path) -> Path:
    """Write what tuning found and return the file.

    Raises:
        OutputError: The state folder cannot be written.
    """
    file = _file(key, state)
    with _writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as stream:
            stream.write(tuned.model_dump_json(indent=1).encode() + b"\n")
    return file


def require_keepable(key: PreparationKey, state: Path) -> None:
    """Refuse before minutes of measuring what `keep_tuned` would refuse after them.

    Raises:
        OutputError: The state folder cannot be written.
    """
    file = _file(key, state)
    with _writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try_file(file)


def forget_tuned(key: PreparationKey, state: Path) -> bool:
    """Remove what tuning found for this bundle on any version of this device.

    Returns:
        Whether there was anything.

    Raises:
        OutputError: It cannot be removed.
    """
    files = sorted((state / FOLDER).glob(f"{key.bundle_prefix}-*.json"))
    try:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
    except OSError as error:
        raise OutputError(
            f"{file} cannot be removed: {error.strerror or error}.",
            remedy="Make the state folder writable.",
        ) from error
    return bool(files)


@contextlib.contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{file} cannot be written: {error.strerror or error}.",
            remedy="Make the state folder writable, or name another with BOARDVOICE_STATE.",
        ) from error


def _file(key: PreparationKey, state: Path) -> Path:
    cpus = ",".join(map(str, usable_cores()))
    rest = "\n".join((key.cpu, key.runtime, key.kv_dtype, cpus))
    digest = hashlib.sha256(rest.encode()).hexdigest()
    return state / FOLDER / f"{key.bundle_prefix}-{digest[:16]}.json"
