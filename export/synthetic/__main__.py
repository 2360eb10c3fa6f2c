"""Command line: ``python -m export.synthetic --size tiny|full --out FOLDER``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from edge_runtime.errors import BoardvoiceError, CancelledError, UsageError
from export.synthetic.maker import make_checkpoint
from export.synthetic.recipes import RECIPES, Recipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Make one checkpoint.

    Args:
        arguments: Command line without the program's name; by default that of the process.

    Returns:
        Exit status.
    """
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    try:
        recipe = _recipe(options.size, options.variant)
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
        ) as bar:
            task = bar.add_task(recipe.name, total=None)
            make_checkpoint(
                options.out,
                recipe,
                seed=options.seed,
                dtype=options.dtype,
                model_format=options.model_format,
                vae_format=options.vae_format,
                replace=options.force,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
    except BoardvoiceError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("cancelled; nothing was kept\n")
        return CancelledError.exit_code
    return 0


def _recipe(size: str, variant: str | None) -> Recipe:
    if variant is None:
        return RECIPES[size]
    recipe = RECIPES.get(variant)
    if recipe is None or recipe.size != size:
        names = ", ".join(name for name, entry in RECIPES.items() if entry.size == size)
        raise UsageError(
            f"--variant {variant!r} is not a {size} recipe.", remedy=f"There are: {names}."
        )
    return recipe


def _folder(text: str) -> Path:
    # Absolute: "." has no name to put a temporary folder beside.
    return Path(os.path.abspath(text))


def _parser() -> argparse.ArgumentParser:
    variants = "\n".join(
        f"  {recipe.name:<16} {recipe.covers}"
        for recipe in RECIPES.values()
        if recipe.size == "tiny"
    )
    parser = argparse.ArgumentParser(
        prog="python -m export.synthetic",
        description="Make a checkpoint with random weights in the official VoxCPM2 layout.",
        epilog=f"variants of --size tiny:\n{variants}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=("tiny", "full"), required=True)
    parser.add_argument("--out", type=_folder, required=True, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variant", metavar="NAME", help="config to use, see below")
    parser.add_argument("--dtype", choices=("bf16", "f16", "f32"), default="bf16")
    parser.add_argument("--vae-format", choices=("safetensors", "pth"), default="safetensors")
    parser.add_argument(
        "--model-format", choices=("safetensors", "sharded", "bin"), default="safetensors"
    )
    parser.add_argument("--force", action="store_true", help="replace a checkpoint that is there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
