"""`boardvoice export miocodec`: options of this family's exporter."""

from __future__ import annotations

import argparse
from pathlib import Path

from edge_runtime.bundle import Manifest
from export.checkpoint.hub import resolve
from export.miocodec.exporter import export_miocodec
from export.progress import OnProgress
from export.weights.plan import WeightPlan

SUMMARY = "MioCodec: speech to 25 tokens per second and a voice, and back; voice conversion"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this family takes."""
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="official checkpoint folder, or a hub id such as Aratako/MioCodec-25Hz-44.1kHz-v2",
    )


def run(
    arguments: argparse.Namespace, weights: WeightPlan, progress: OnProgress | None
) -> Manifest:
    """Export as the parsed arguments say. See `export_miocodec`."""
    return export_miocodec(
        resolve(arguments.checkpoint),
        Path(arguments.out),
        weights=weights,
        profile=arguments.profile,
        name=arguments.name or Path(arguments.checkpoint).name,
        replace=arguments.force,
        progress=progress,
    )
