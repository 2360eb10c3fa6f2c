"""How graphs are run on this device: threads, spinning, overlap, cores; and who said so."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from device_profiles.cores import big_cores, usable_cores
from device_profiles.probes.cpu import usable_cpus
from device_profiles.schema import Profile
from edge_runtime.affinity import why_not

Source = Literal["profile", "options", "tuned"]
_LOG = logging.getLogger("boardvoice")


@dataclass(frozen=True)
class RuntimeChoice:
    """Settings that a loaded bundle runs with.

    Attributes:
        threads: Threads per session.
        spinning: Whether threads spin between the nodes of a run.
        overlap_vae: Whether a patch is decoded to audio while the next one is computed.
        cores: CPUs that they run on; empty for all that this process may use.
        source: Who said so: the profile, the options of the load, or an earlier `tune`.
        note: What could not be done as asked, for the user; empty otherwise.
    """

    threads: int = 1
    spinning: bool = False
    overlap_vae: bool = False
    cores: tuple[int, ...] = ()
    source: Source = "profile"
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "cores": list(self.cores)}

    def usable(self) -> RuntimeChoice:
        """This choice, or without its cores, and with a note, where they cannot be used."""
        reason = why_not(self.cores)
        if not reason:
            return self
        cores = ", ".join(map(str, self.cores))
        return replace(self, cores=()).with_note(f"Runs on any core instead of {cores}: {reason}.")

    def with_note(self, note: str) -> RuntimeChoice:
        """This choice with another note, which is logged."""
        _LOG.warning("%s", note)
        return replace(self, note=f"{self.note} {note}".strip())


def profile_choice(
    profile: Profile, threads: int | None = None, root: Path = Path("/")
) -> RuntimeChoice:
    """What a profile says, resolved on this device.

    Args:
        profile: The profile.
        threads: Takes the place of the profile's thread count.
        root: Where ``proc`` and ``sys`` are.
    """
    section, usable = profile.runtime, usable_cores()
    cores: tuple[int, ...] = ()
    if section.cores == "big":
        # Where all are alike, all are big.
        cores = big_cores(usable, root)
    elif section.cores != "all":
        cores = tuple(sorted(section.cores))
    source: Source = "options" if threads is not None else "profile"
    choice = RuntimeChoice(spinning=section.spinning, cores=cores, source=source).usable()
    every = len(choice.cores or usable)
    if threads is None:
        # A cgroup's quota gives less time than there are CPUs.
        most = usable_cpus(root)
        threads = min(every, most) if section.threads == "auto" else section.threads
        if threads > most:
            choice = choice.with_note(
                f"Runs on {most} threads instead of {threads}: this process may use {most} CPUs."
            )
            threads = most
    overlap = section.overlap_vae
    if overlap == "auto":
        overlap = overlaps(every, threads, section.spinning)
    return replace(choice, threads=threads, overlap_vae=overlap)


def overlaps(cpus: int, threads: int, spinning: bool) -> bool:
    """Whether decoding audio beside the next patch is faster, by measurement.

    It fills what a patch leaves of the CPUs; threads that spin leave nothing.

    Args:
        cpus: CPUs that threads may run on.
        threads: Threads per session.
        spinning: Whether idle threads spin.
    """
    return cpus > (threads if spinning else 1)
