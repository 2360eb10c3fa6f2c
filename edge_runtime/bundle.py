"""The bundle: a folder with a manifest that names every file, its size and its SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from device_profiles.plain_file import read_plain_file
from edge_runtime.errors import BundleError

MANIFEST = "manifest.json"
FORMAT = 1
_BLOCK = 1024 * 1024


class BundleFile(BaseModel):
    """One file of a bundle."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """`manifest.json`.

    Attributes:
        format: Version of this layout.
        family: Model family; names the folder in `edge_runtime` that runs it.
        name: What the voice is called.
        made_by: Program and version that wrote the bundle.
        weights: Weight plan (`f32`, `f16`, `int8`, `int4`).
        formats: Weight format by layer kind; the plan's, but for what was chosen otherwise.
        profile: Device profile it was exported for, if one was named.
        synthetic: Set when the weights are seeded noise: it makes sound, not speech.
        model: The family's own description, read by that family.
        files: Every other file of the bundle by its relative path.
        sha256: Hash of the manifest's own content without this key. Sizes and rates stand
            nowhere else, so a flipped bit among them would load silently.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1]
    family: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    name: str
    made_by: str
    weights: str
    formats: dict[str, str] = Field(default_factory=dict)
    profile: str | None = None
    synthetic: bool = False
    model: dict[str, Any]
    files: dict[str, BundleFile]
    sha256: str | None = None

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, BundleFile]) -> dict[str, BundleFile]:
        for name in files:
            path = PurePosixPath(name)
            # A NUL or half a surrogate pair makes the file system's calls raise ValueError.
            strange = "\\" in name or not name.isprintable()
            if path.is_absolute() or ".." in path.parts or not path.parts or strange:
                raise ValueError(f"file name {name!r} is not a plain path inside the bundle")
        return files


@dataclass(frozen=True)
class Bundle:
    """An opened bundle.

    Attributes:
        folder: Where it lies.
        manifest: Its manifest.
    """

    folder: Path
    manifest: Manifest

    @staticmethod
    def open(folder: Path | str, *, verify: bool = True) -> Bundle:
        """Read the manifest and check the files against it.

        Args:
            folder: Bundle folder.
            verify: Compare every file's SHA-256; without it only presence and size. A flipped
                bit in a weight loads silently in ONNX Runtime, so only the hash finds it.

        Raises:
            BundleError: Missing, torn, altered, or written by another version.
        """
        folder = Path(folder)
        bundle = Bundle(folder, _read_manifest(folder, verify=verify))
        bundle._check_sizes()
        if verify:
            bundle.verify()
        return bundle

    @staticmethod
    def read(folder: Path | str) -> Bundle:
        """Read the manifest alone, and check it against its own hash. See `damaged`.

        Raises:
            BundleError: The manifest is missing, torn, altered, or of another version.
        """
        return Bundle(Path(folder), _read_manifest(Path(folder), verify=True))

    def path(self, name: str) -> Path:
        """Path of a file that the manifest lists.

        Raises:
            BundleError: The manifest does not list it.
        """
        if name not in self.manifest.files:
            raise BundleError(
                f"{self.folder / MANIFEST} lists no file {name!r}.", remedy="Export it again."
            )
        return self.folder / name

    def graphs(self, kv_dtype: str = "f32") -> dict[str, str]:
        """Graph files that a device runs, by graph name.

        ``NAME.kv_DTYPE.onnx`` is NAME over a KV cache of that type, with the weights of NAME.

        Args:
            kv_dtype: Storage of keys and values.

        Raises:
            BundleError: The bundle has no graph for that type.
        """
        files = {
            PurePosixPath(name).name.removesuffix(".onnx"): name
            for name in self.manifest.files
            if name.endswith(".onnx")
        }
        suffix = f".kv_{kv_dtype}"
        variants = {graph_name(file): file for stem, file in files.items() if stem.endswith(suffix)}
        if kv_dtype != "f32" and not variants:
            # Its ranges have to be measured, which an export does only when told to.
            option = " with --int8-kv" if kv_dtype == "int8" else ""
            raise BundleError(
                f"{self.folder} has no graph for a KV cache in {kv_dtype}.",
                remedy=f"Export the bundle again{option}, or set kv.dtype to f32 in the profile.",
            )
        return {stem: file for stem, file in files.items() if "." not in stem} | variants

    def _check_sizes(self) -> None:
        for name, entry in self.manifest.files.items():
            self._check_size(name, entry)

    def _check_size(self, name: str, entry: BundleFile) -> None:
        path = self.folder / name
        try:
            found = path.stat().st_size
        except OSError:
            raise _damaged(path, "is missing") from None
        if not path.is_file():
            raise _damaged(path, "is not a file")
        if found != entry.size:
            raise _damaged(path, f"has {found} bytes, the manifest says {entry.size}")

    def verify(self, *, skip_graphs: bool = False, skip_npu: bool = False) -> None:
        """Compare every file's SHA-256 with the manifest's, and the manifest with its own.

        Args:
            skip_graphs: Leave out graphs and their weights, which then nobody reads from here.
            skip_npu: Leave out models for an NPU, which are as large as the weights.

        Raises:
            BundleError: A file differs.
        """
        _read_manifest(self.folder, verify=True)
        files = {
            name: entry
            for name, entry in self.manifest.files.items()
            if not (skip_graphs and name.endswith((".onnx", ".weights")))
            and not (skip_npu and name.endswith(".rknn"))
        }
        self._compare(files)

    def verify_file(self, name: str) -> None:
        """Compare one file's SHA-256 with the manifest's.

        Raises:
            BundleError: It differs, or the manifest does not list it.
        """
        self.path(name)
        self._compare({name: self.manifest.files[name]})

    def verify_graph(self, name: str) -> None:
        """Compare one graph file's SHA-256 and that of its weights with the manifest's.

        Raises:
            BundleError: One differs.
        """
        weights = f"{name.rpartition('/')[0]}/{graph_name(name)}.weights"
        files = self.manifest.files
        self._compare({file: files[file] for file in (name, weights) if file in files})

    def damaged(self) -> list[str]:
        """What is wrong with any file, in words; `verify` stops at the first.

        Every byte is read. Files of the wrong size are not: that is finding enough.
        """
        findings, whole = [], {}
        for name, entry in self.manifest.files.items():
            try:
                self._check_size(name, entry)
            except BundleError as error:
                findings.append(error.message)
            else:
                whole[name] = entry
        for name, entry in whole.items():
            try:
                self._compare({name: entry})
            except BundleError as error:
                findings.append(error.message)
        return findings

    def _compare(self, files: Mapping[str, BundleFile]) -> None:
        largest_first = sorted(files, key=lambda name: -files[name].size)
        with ThreadPoolExecutor(max_workers=2) as pool:
            digests = pool.map(lambda name: sha256_of(self.folder / name), largest_first)
            for name, digest in zip(largest_first, digests, strict=True):
                if digest != files[name].sha256:
                    raise _damaged(self.folder / name, "does not match its SHA-256")


def graph_name(file: str) -> str:
    """Name of the graph in a file: what stands before the first dot."""
    return PurePosixPath(file).name.split(".")[0]


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error
    return digest.hexdigest()


def manifest_text(manifest: Manifest) -> str:
    """The manifest as it is written: with its hash, sorted, indented, one final newline."""
    data: dict[str, Any] = manifest.model_dump(mode="json")
    data["sha256"] = _content_hash(data)
    return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _content_hash(data: Mapping[str, Any]) -> str:
    content = {key: value for key, value in data.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()


def _read_manifest(folder: Path, *, verify: bool) -> Manifest:
    file = folder / MANIFEST
    if not os.path.isdir(folder):
        raise BundleError(
            f"{folder} is not a folder.", remedy="Name the folder that 'boardvoice export' wrote."
        )
    try:
        data = json.loads(read_plain_file(file).decode("utf-8"))
    except FileNotFoundError:
        raise BundleError(
            f"{file} does not exist: {folder} is not a bundle.",
            remedy="Name the folder that 'boardvoice export' wrote.",
        ) from None
    except (ValueError, OSError, RecursionError) as error:
        raise _damaged(file, f"is not readable JSON ({error})") from error
    if isinstance(data, dict) and data.get("format") != FORMAT:
        raise BundleError(
            f"{file}: format {data.get('format')!r} is not {FORMAT}.",
            remedy="Export it with this version of boardvoice, or install the one that made it.",
        )
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        raise BundleError(
            f"{file}: {describe_errors(error)}.", remedy="Export or copy the bundle again."
        ) from error
    if verify and manifest.sha256 not in (None, _content_hash(data)):
        raise _damaged(file, "does not match its own SHA-256")
    return manifest


def describe_errors(error: ValidationError) -> str:
    """All findings of pydantic in one line: key, then what is wrong with it."""
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'top level'}: {item['msg']}"
        for item in error.errors()
    )


def _damaged(path: Path, what: str) -> BundleError:
    return BundleError(f"{path} {what}.", remedy="Export or copy the bundle again.")
