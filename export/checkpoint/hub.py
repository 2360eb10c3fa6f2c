"""A checkpoint by folder or by Hugging Face hub id; the hub client is optional."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from edge_runtime.errors import CheckpointError, DependencyError

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*", re.ASCII)
_PATTERNS: Final = (
    "config.json",
    "config.yaml",
    "*.safetensors",
    "*.index.json",
    "pytorch_model*.bin",
    "audiovae.*",
    "tokenizer*",
)


def resolve(checkpoint: str) -> Path:
    """Folder of a checkpoint; a hub id (``owner/name``) is downloaded first.

    Args:
        checkpoint: An existing folder, or a hub id. A folder wins over a hub id.

    Raises:
        CheckpointError: Neither of both, or the download failed.
        DependencyError: A hub id, but ``huggingface_hub`` is not installed.
    """
    folder = Path(checkpoint)
    try:
        if checkpoint and folder.is_dir():
            return folder
        exists = bool(checkpoint) and folder.exists()
    except (OSError, ValueError):
        exists = False
    if exists:
        raise CheckpointError(
            f"{checkpoint} is not a folder.", remedy="Name the folder that holds config.json."
        )
    if not _HUB_ID.fullmatch(checkpoint):
        raise CheckpointError(
            f"{checkpoint!r} is neither an existing folder nor a hub id (owner/name).",
            remedy="Name the folder that holds config.json.",
        )
    return _download(checkpoint)


def _download(hub_id: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise DependencyError(
            f"{hub_id!r} is no folder here, and fetching it from the hub needs huggingface_hub "
            f"({error}).",
            remedy="Run: pip install huggingface_hub, or download the checkpoint by hand and "
            "name its folder.",
        ) from error
    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(_PATTERNS)))
    except Exception as error:
        # Which types the client and its HTTP library raise differs between their versions.
        raise CheckpointError(
            f"{hub_id!r} is no folder here and could not be fetched from the hub "
            f"({type(error).__name__}: {error}).",
            remedy="Check the name and the network, or download the checkpoint by hand and name "
            "its folder.",
        ) from error
