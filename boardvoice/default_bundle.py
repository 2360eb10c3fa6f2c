"""The voice that speaks when no bundle is named: exported once from the package's checkpoint."""

from __future__ import annotations

import os
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

from edge_runtime.atomic import atomic_folder
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BundleError, OutputError
from edge_runtime.golden.golden_file import GOLDEN
from export.voxcpm2.exporter import export_voxcpm2

NAME = "demo"
WEIGHTS: Final = "int8"


def demo_checkpoint() -> Path:
    """Folder of the demo voice's checkpoint, in the official layout (docs/demo_voice)."""
    return Path(__file__).parent / "demo_voice" / "checkpoint"


def default_bundle(cache: Path | None = None) -> Path:
    """Folder of the default bundle, made if it is not there yet.

    Args:
        cache: Folder that keeps it; ``$XDG_CACHE_HOME/boardvoice`` or ``~/.cache/boardvoice``.

    Raises:
        BundleError: The cache folder cannot be written.
        CheckpointError: The package's checkpoint is damaged.
    """
    cache = cache or _cache_folder()
    bundle = cache / f"{NAME}-{version('boardvoice')}-{_fingerprint()}"
    try:
        whole = GOLDEN in Bundle.open(bundle).manifest.files
    except BundleError:
        whole = False
    if not whole:
        # Not there yet, damaged, or made before there were golden vectors: it costs a second.
        _make(bundle)
    return bundle


def _fingerprint() -> str:
    """Another one for weights of another training."""
    checkpoint = demo_checkpoint()
    digest = sha256()
    for name in ("config.json", "steps.json"):
        try:
            digest.update((checkpoint / name).read_bytes())
        except OSError as error:
            raise BundleError(
                f"The package's own voice is not there: {checkpoint / name}: {error.strerror}.",
                remedy="Install boardvoice again, or name a --bundle.",
            ) from error
    return digest.hexdigest()[:8]


def _make(bundle: Path) -> None:
    try:
        bundle.parent.mkdir(parents=True, exist_ok=True)
        # The exporter replaces bundles only; here what is left of a damaged one goes too.
        with atomic_folder(bundle, replace=True) as part:
            made = part / "bundle"
            export_voxcpm2(demo_checkpoint(), made, weights=WEIGHTS, name=NAME)
            for file in made.iterdir():
                os.rename(file, part / file.name)
            made.rmdir()
    except (OSError, OutputError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise BundleError(
            f"The default voice cannot be made in {bundle.parent}: {str(reason).rstrip('.')}.",
            remedy="Set XDG_CACHE_HOME to a folder that can be written, or name a --bundle.",
        ) from error


def _cache_folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification says to ignore a relative one.
    return (base if base.is_absolute() else Path.home() / ".cache") / "boardvoice"
