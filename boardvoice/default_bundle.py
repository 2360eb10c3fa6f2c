"""The voice that speaks when no bundle is named: made on the spot, once, in the user's cache."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import version
from pathlib import Path

from edge_runtime.atomic import atomic_folder
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BundleError, OutputError
from edge_runtime.golden.golden_file import GOLDEN
from export.synthetic.maker import make_checkpoint
from export.synthetic.recipes import RECIPES
from export.voxcpm2.exporter import export_voxcpm2

NAME = "synthetic-tiny"
# A seed whose stop head ends most texts after a few seconds.
_SEED = 7


def default_bundle(cache: Path | None = None) -> Path:
    """Folder of the default bundle, made if it is not there yet.

    Its weights are seeded noise in VoxCPM2's own architecture: it proves that everything between
    text and sound works here, and does not speak.

    Args:
        cache: Folder that keeps it; ``$XDG_CACHE_HOME/boardvoice`` or ``~/.cache/boardvoice``.

    Raises:
        BundleError: The cache folder cannot be written.
    """
    cache = cache or _cache_folder()
    bundle = cache / f"{NAME}-{version('boardvoice')}"
    try:
        whole = GOLDEN in Bundle.open(bundle).manifest.files
    except BundleError:
        whole = False
    if not whole:
        # Not there yet, damaged, or made before there were golden vectors: it costs a second.
        _make(cache, bundle)
    return bundle


def _make(cache: Path, bundle: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with atomic_folder(bundle, replace=True) as part:
            checkpoint = make_checkpoint(part / "checkpoint", RECIPES["tiny"], seed=_SEED)
            made = part / "bundle"
            export_voxcpm2(checkpoint, made, weights="f32", name=NAME)
            shutil.rmtree(checkpoint)
            for file in made.iterdir():
                os.rename(file, part / file.name)
            made.rmdir()
    except (OSError, OutputError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise BundleError(
            f"The default voice cannot be made in {cache}: {str(reason).rstrip('.')}.",
            remedy="Set XDG_CACHE_HOME to a folder that can be written, or name a --bundle.",
        ) from error


def _cache_folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification says to ignore a relative one.
    return (base if base.is_absolute() else Path.home() / ".cache") / "boardvoice"
