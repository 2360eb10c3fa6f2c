"""Finds profiles: those that ship with the package, the user's, and the one that fits here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from device_profiles.choose import Candidate, Choice, choose
from device_profiles.detect import BoardFacts, detect
from device_profiles.layers import ProfileFile, ProfileLoadError, ProfileStore, read_file
from device_profiles.probes.cpu import usable_cpus
from device_profiles.schema import Profile
from device_profiles.validation import match_of, validated

__all__ = [
    "PROFILE_VARIABLE",
    "FoundProfile",
    "ProfileLoadError",
    "choose_here",
    "find_profile",
    "load_profile",
    "profile_names",
    "usable_cpus",
]

# Names the profile where nothing else does; for containers that do not see their board.
PROFILE_VARIABLE = "BOARDVOICE_PROFILE"


@dataclass(frozen=True)
class FoundProfile:
    """A profile with where it comes from.

    Attributes:
        profile: The profile.
        sources: Its file and those it inherits from, nearest first.
        reasons: Why it was chosen.
    """

    profile: Profile
    sources: tuple[str, ...]
    reasons: tuple[str, ...]


def profile_names(root: Path = Path("/")) -> list[str]:
    """Names of the profiles there are: the package's, the system's and the user's."""
    return ProfileStore.of(root).names()


def load_profile(
    name: str | None = None, *, machine: str | None = None, root: Path = Path("/")
) -> Profile:
    """Load a profile by name or path, or the one that fits this board.

    Args:
        name: A name of `profile_names`, a path to a YAML file, or None: then
            ``BOARDVOICE_PROFILE`` names it, else the board is recognized.
        machine: `uname -m`; the running machine's by default.
        root: Where ``/proc``, ``/sys`` and ``/etc`` are read.

    Raises:
        ProfileLoadError: Not found, not YAML, unknown key, wrong value or nothing fits.
    """
    return find_profile(name, machine=machine, root=root).profile


def find_profile(
    name: str | None = None, *, machine: str | None = None, root: Path = Path("/")
) -> FoundProfile:
    """As `load_profile`, with files and reasons."""
    store = ProfileStore.of(root)
    reasons: tuple[str, ...] = (f"{name} was asked for",)
    if name is None:
        name, reasons = _unasked(store, detect(root, machine=machine))
    layers = store.layers(_file(store, name))
    return FoundProfile(validated(layers), tuple(f.source for f in layers.files), reasons)


def choose_here(facts: BoardFacts, root: Path = Path("/")) -> Choice:
    """The profile that fits facts, by recognition alone.

    Raises:
        ProfileLoadError: None fits, or one of the user's files is wrong.
    """
    return _choose(ProfileStore.of(root), facts)


def _unasked(store: ProfileStore, facts: BoardFacts) -> tuple[str, tuple[str, ...]]:
    named = os.environ.get(PROFILE_VARIABLE)
    if named:
        return named, (f"{PROFILE_VARIABLE} names it",)
    choice = _choose(store, facts)
    return choice.name, choice.reasons


def _choose(store: ProfileStore, facts: BoardFacts) -> Choice:
    files = list(store.candidates())
    groups = [
        [_candidate(file) for file in files if (file.origin == "shipped") is shipped]
        for shipped in (False, True)
    ]
    choice = choose(facts, groups)
    if choice is None:
        known = sorted({machine for file in files for machine in _candidate(file).machines})
        raise ProfileLoadError(
            f"no profile fits machine {facts.machine!r} (known: {', '.join(known)}); "
            "name one with --profile"
        )
    return choice


def _candidate(file: ProfileFile) -> Candidate:
    machines = file.data.get("machines", ())
    if not isinstance(machines, list | tuple) or not all(isinstance(m, str) for m in machines):
        raise ProfileLoadError(f"{file.source}: machines: must be a list of names")
    return Candidate(file.name, match_of(file), tuple(machines))


def _file(store: ProfileStore, name: str) -> ProfileFile:
    found = store.find(name)
    if found is not None:
        return found
    if Path(name).suffix in (".yaml", ".yml") or os.sep in name:
        return read_file(name)
    if name in store.bases():
        raise ProfileLoadError(
            f"profile {name!r} is a base: extend it in a file of your own, or take one of "
            f"{', '.join(store.names())}"
        )
    raise ProfileLoadError(
        f"no profile is called {name!r}; there are {', '.join(store.names())}, "
        "or give the path of a .yaml file"
    )
