"""The voice that speaks when no bundle is named: made on the spot, once, in the user's cache."""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from edge_runtime.bundle import MANIFEST
from edge_runtime.errors import BundleError, OutputError
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
        OutputError: The cache folder cannot be written.
    """
    cache = cache or _cache_folder()
    bundle = cache / f"{NAME}-{version('boardvoice')}"
    if (bundle / MANIFEST).is_file():
        return bundle
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as scratch:
            checkpoint = make_checkpoint(Path(scratch) / NAME, RECIPES["tiny"], seed=_SEED)
            made = Path(scratch) / "bundle"
            export_voxcpm2(checkpoint, made, weights="f32", name=NAME)
            _put_in_place(made, bundle)
    except (OSError, OutputError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BundleError(
            f"The default voice cannot be made in {cache}: {reason}.",
            remedy="Set XDG_CACHE_HOME to a folder that can be written, or name a --bundle.",
        ) from error
    return bundle


def _put_in_place(made: Path, bundle: Path) -> None:
    try:
        os.rename(made, bundle)
    except OSError:
        # Another process was quicker: its bundle is the same.
        if not (bundle / MANIFEST).is_file():
            raise


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "boardvoice"
