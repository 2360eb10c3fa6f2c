"""Finds profiles: those that ship with the package, and files a user names."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from device_profiles.schema import Profile


class ProfileLoadError(ValueError):
    """A profile that cannot be found or is wrong; the text names file, key and what is allowed."""


def profile_names() -> list[str]:
    """Names of the profiles that ship with the package."""
    boards = files("device_profiles") / "boards"
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in boards.iterdir()
        if entry.name.endswith(".yaml")
    )


def load_profile(name: str | None = None, *, machine: str | None = None) -> Profile:
    """Load a profile by name or path.

    Args:
        name: A name of `profile_names`, a path to a YAML file, or None to choose by machine.
        machine: `uname -m` to choose by; the running machine's by default.

    Raises:
        ProfileLoadError: Not found, not YAML, unknown key or wrong value.
    """
    if name is None:
        return _by_machine(machine or platform.machine())
    if name in profile_names():
        resource = files("device_profiles") / "boards" / f"{name}.yaml"
        return _parse(resource.read_text(encoding="utf-8"), str(resource))
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or os.sep in name:
        try:
            return _parse(path.read_text(encoding="utf-8"), name)
        except (OSError, ValueError) as error:
            raise ProfileLoadError(f"profile file {name} cannot be read: {error}") from error
    raise ProfileLoadError(
        f"no profile is called {name!r}; there are {', '.join(profile_names())}, "
        "or give the path of a .yaml file"
    )


def usable_cpus() -> int:
    """CPUs that this process may run on (affinity and cpusets count, unlike ``os.cpu_count``)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _by_machine(machine: str) -> Profile:
    profiles = [load_profile(name) for name in profile_names()]
    for profile in profiles:
        if machine in profile.machines:
            return profile
    known = sorted(name for profile in profiles for name in profile.machines)
    raise ProfileLoadError(
        f"no profile fits machine {machine!r} (known: {', '.join(known)}); name one with --profile"
    )


def _parse(text: str, source: str) -> Profile:
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ProfileLoadError(f"{source} is not YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise ProfileLoadError(f"{source} holds no mapping of keys")
    try:
        return Profile.model_validate(dict(data))
    except ValidationError as error:
        details = "; ".join(
            _describe(item["loc"], item["type"], item["msg"]) for item in error.errors()
        )
        raise ProfileLoadError(f"{source}: {details}") from error


def _describe(place: tuple[int | str, ...], kind: str, message: str) -> str:
    key = ".".join(map(str, place))
    if kind != "extra_forbidden":
        return f"{key}: {message}"
    section: Any = Profile
    for part in place[:-1]:
        section = section.model_fields[part].annotation
    return f"{key}: no such key; there are {', '.join(section.model_fields)}"
