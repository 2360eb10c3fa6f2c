"""Which files of an official checkpoint folder hold the weights, and how a tensor is demanded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from edge_runtime.errors import CheckpointError
from export.checkpoint.safetensors_file import SafetensorsFile
from export.checkpoint.shard_index import ShardIndex
from export.checkpoint.tensor_source import LazyTensor, PrefixedSource, TensorSource
from export.checkpoint.torch_zip import TorchZip

# Order of preference, as the official loader has it.
_MODEL: Final[Mapping[str, Callable[[Path], TensorSource]]] = MappingProxyType(
    {
        "model.safetensors": SafetensorsFile,
        "model.safetensors.index.json": lambda path: ShardIndex(path, SafetensorsFile),
        "pytorch_model.bin": TorchZip,
        "pytorch_model.bin.index.json": lambda path: ShardIndex(path, TorchZip),
    }
)
_AUDIO_VAE: Final[Mapping[str, Callable[[Path], TensorSource]]] = MappingProxyType(
    {"audiovae.safetensors": SafetensorsFile, "audiovae.pth": TorchZip}
)


def open_model(folder: Path) -> TensorSource:
    """Open the language and flow weights of a checkpoint folder.

    Raises:
        CheckpointError: No folder, none of the known files in it, or the file is damaged.
        UnsupportedError: The file uses a format or type that is refused by name.
    """
    return _open_first(folder, _MODEL)


def open_audio_vae(folder: Path) -> TensorSource:
    """Open the AudioVAE weights of a checkpoint folder.

    Raises:
        CheckpointError: No folder, none of the known files in it, or the file is damaged.
        UnsupportedError: The file uses a format or type that is refused by name.
    """
    return _open_first(folder, _AUDIO_VAE)


def require(source: Mapping[str, LazyTensor], name: str, shape: tuple[int, ...]) -> LazyTensor:
    """Look up a tensor that must be there with exactly this shape.

    Raises:
        CheckpointError: Missing, or of another shape; names file, tensor and both shapes.
    """
    tensor = source.get(name)
    if tensor is None:
        full_name, whole = _unwrap(source, name)
        raise CheckpointError(
            f"{_where(whole)}: tensor {full_name!r} of shape {shape} is missing.",
            remedy="config.json and weights must come from the same, complete checkpoint.",
        )
    if tensor.shape != tuple(shape):
        raise CheckpointError(
            f"{tensor.file}: tensor {tensor.name!r} has shape {tensor.shape}, "
            f"config.json asks for {tuple(shape)}.",
            remedy="config.json and weights must come from the same checkpoint.",
        )
    return tensor


def _open_first(
    folder: Path, readers: Mapping[str, Callable[[Path], TensorSource]]
) -> TensorSource:
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is not a folder.", remedy="Name the folder that holds config.json."
        )
    for name, reader in readers.items():
        # A dangling link counts: its own error says more than "not found".
        if os.path.lexists(folder / name):
            return reader(folder / name)
    raise CheckpointError(
        f"{folder} holds no weights; looked for {', '.join(readers)}.",
        remedy="Download the complete checkpoint into this folder.",
    )


def _unwrap(source: Mapping[str, LazyTensor], name: str) -> tuple[str, Mapping[str, LazyTensor]]:
    if isinstance(source, PrefixedSource):
        return _unwrap(source.source, source.prefix + name)
    return name, source


def _where(source: Mapping[str, LazyTensor]) -> str:
    """The file a tensor was looked for in, or the folder if there are several."""
    files = sorted({tensor.file for tensor in source.values()})
    if not files:
        return "checkpoint without tensors"
    return str(files[0]) if len(files) == 1 else f"{files[0].parent} ({len(files)} files)"
