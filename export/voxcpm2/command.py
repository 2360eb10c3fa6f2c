"""`boardvoice export voxcpm2`: options of this family's exporter."""

from __future__ import annotations

import argparse
from pathlib import Path

from edge_runtime.bundle import Manifest
from export.checkpoint.hub import resolve
from export.progress import OnProgress
from export.voxcpm2.exporter import export_voxcpm2
from export.weights.plan import WeightPlan

SUMMARY = "VoxCPM2: text to 48 kHz speech, voice design and cloning"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this family takes."""
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="official checkpoint folder, or a hub id such as openbmb/VoxCPM2",
    )


def run(
    arguments: argparse.Namespace, weights: WeightPlan, progress: OnProgress | None
) -> Manifest:
    """Export as the parsed arguments say. See `export_voxcpm2`."""
    checkpoint = resolve(arguments.checkpoint)
    return export_voxcpm2(
        checkpoint,
        Path(arguments.out),
        weights=weights,
        profile=arguments.profile,
        name=arguments.name or Path(arguments.checkpoint).name,
        replace=arguments.force,
        progress=progress,
    )
