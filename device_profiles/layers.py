"""Profile files as they lie on disk: where they are looked for, what one inherits from another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from device_profiles.plain_file import read_plain_file

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# A user's file, the board, its chip, and one in between.
MAX_LAYERS = 4
SYSTEM_FOLDER = "etc/boardvoice/profiles"
# These belong to one file and are not inherited.
_OWN_KEYS = ("name", "title", "machines", "match", "extends", "verified")
_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ProfileLoadError(ValueError):
    """A profile that cannot be found or is wrong; the text names file, key and what is allowed."""


@dataclass(frozen=True)
class ProfileFile:
    """One file.

    Attributes:
        name: File stem.
        source: Path, for messages.
        origin: ``user``, ``system``, ``shipped``, or ``base``, which only others extend.
        data: What it says, nothing inherited.
    """

    name: str
    source: str
    origin: str
    data: Mapping[str, Any]

    @property
    def extends(self) -> str | None:
        """Name of the profile that this one inherits from."""
        parent = self.data.get("extends")
        if parent is not None and not isinstance(parent, str):
            raise ProfileLoadError(f"{self.source}: extends: must be the name of a profile")
        return parent


@dataclass(frozen=True)
class ProfileLayers:
    """A file and what it inherits from, nearest first."""

    files: tuple[ProfileFile, ...]

    def merged(self) -> dict[str, Any]:
        """Everything said, the nearest file winning; mappings are merged, lists replaced."""
        result: dict[str, Any] = {}
        for file in reversed(self.files):
            data = dict(file.data)
            if file is not self.files[0]:
                data = {key: value for key, value in data.items() if key not in _OWN_KEYS}
            result = _merge(result, data)
        result.pop("extends", None)
        return result

    def source_of(self, place: tuple[int | str, ...]) -> str:
        """The file that says what stands at a place."""
        for file in self.files:
            if file is self.files[0] or (place and place[0] not in _OWN_KEYS):
                value: Any = file.data
                for part in place:
                    if not isinstance(value, Mapping) or part not in value:
                        break
                    value = value[part]
                    if not isinstance(value, Mapping):
                        return file.source
                else:
                    return file.source
        return self.files[0].source


@dataclass(frozen=True)
class ProfileStore:
    """All profile files of this machine: the user's, the system's, and those of the package.

    Attributes:
        root: Where ``/etc`` lies.
        user: The user's folder.
    """

    root: Path
    user: Path

    @staticmethod
    def of(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> ProfileStore:
        """Look in ``$XDG_CONFIG_HOME`` (else ``~/.config``) and ``/etc``."""
        config = environment.get("XDG_CONFIG_HOME")
        home = Path(config) if config else Path.home() / ".config"
        return ProfileStore(root, home / "boardvoice" / "profiles")

    @staticmethod
    def shipped() -> ProfileStore:
        """The package's own files alone, whatever this machine adds."""
        return ProfileStore(Path("/nonexistent"), Path("/nonexistent"))

    def names(self) -> list[str]:
        """Names that can be asked for, sorted."""
        return sorted(
            {name for origin in ("user", "system", "shipped") for name in self._in(origin)}
        )

    def bases(self) -> list[str]:
        """Names that can only be extended."""
        return sorted(self._in("base"))

    def candidates(self) -> Iterator[ProfileFile]:
        """Every file that may be chosen, the user's first; one that is shadowed is left out."""
        seen: set[str] = set()
        for origin in ("user", "system", "shipped"):
            for name, entry in sorted(self._in(origin).items()):
                if name not in seen:
                    seen.add(name)
                    yield _read(name, entry, origin)

    def find(self, name: str, *, bases: bool = False) -> ProfileFile | None:
        """The file behind a name."""
        for origin in ("user", "system", "shipped", "base")[: 4 if bases else 3]:
            entry = self._in(origin).get(name)
            if entry is not None:
                return _read(name, entry, origin)
        return None

    def layers(self, file: ProfileFile) -> ProfileLayers:
        """A file with everything that it extends.

        Raises:
            ProfileLoadError: Something that is not there, a circle, or too many layers.
        """
        chain = [file]
        while (parent := chain[-1].extends) is not None:
            names = [layer.name for layer in chain]
            found = self.find(parent, bases=True)
            if found is None:
                known = ", ".join(self.names() + self.bases())
                raise ProfileLoadError(
                    f"{chain[-1].source}: extends: no profile is called {parent!r}; "
                    f"there are {known}"
                )
            if found.source in {layer.source for layer in chain}:
                raise ProfileLoadError(
                    f"{file.source}: extends: goes in a circle, {' > '.join([*names, parent])}"
                )
            if len(chain) == MAX_LAYERS:
                raise ProfileLoadError(
                    f"{file.source}: extends: more than {MAX_LAYERS} layers, "
                    f"{' > '.join([*names, parent])}"
                )
            chain.append(found)
        return ProfileLayers(tuple(chain))

    def _in(self, origin: str) -> dict[str, Traversable]:
        """Files by name."""
        folder: Traversable = {
            "user": self.user,
            "system": self.root / SYSTEM_FOLDER,
            "shipped": files("device_profiles") / "boards",
            "base": files("device_profiles") / "socs",
        }[origin]
        try:
            entries = list(folder.iterdir())
        except OSError:
            return {}
        return {
            entry.name.rpartition(".")[0]: entry
            for entry in entries
            if entry.name.endswith((".yaml", ".yml")) and not entry.name.startswith(".")
        }


def read_file(path: str) -> ProfileFile:
    """A profile by path.

    Raises:
        ProfileLoadError: Not there, not readable, no YAML or no mapping.
    """
    try:
        return _read(Path(path).stem, Path(path), "file", source=path)
    except ValueError as error:
        if isinstance(error, ProfileLoadError):
            raise
        raise ProfileLoadError(f"profile file {path} cannot be read: {error}") from error


def _read(name: str, entry: Traversable, origin: str, *, source: str = "") -> ProfileFile:
    source = source or str(entry)
    try:
        content = read_plain_file(entry) if isinstance(entry, Path) else entry.read_bytes()
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ProfileLoadError(f"profile file {source} cannot be read: {error}") from error
    # The fast parser is written in C and takes a deeply nested file for an order to crash.
    loader = _FAST_LOADER if origin in ("shipped", "base") else yaml.SafeLoader
    try:
        data = yaml.load(text, loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ProfileLoadError(f"{source} is not YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise ProfileLoadError(f"{source} holds no mapping of keys")
    if origin in ("user", "system") and data.get("name") != name:
        raise ProfileLoadError(
            f"{source}: name: must be {name!r}, like the file, not {data.get('name')!r}"
        )
    return ProfileFile(name, source, origin, data)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        # A figure is replaced whole: its source speaks of its own value only.
        figure = isinstance(value, Mapping) and "source" in value
        if isinstance(below, Mapping) and isinstance(value, Mapping) and not figure:
            result[key] = _merge(below, value)
        else:
            result[key] = value
    return result
