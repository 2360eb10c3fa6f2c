"""`boardvoice export voxcpm2`: options of this family's exporter."""

from __future__ import annotations

import argparse
from pathlib import Path

from device_profiles.catalog import load_profile
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
    parser.add_argument(
        "--int8-kv",
        action=argparse.BooleanOptionalAction,
        help="add the LM over an int8 KV cache, whose ranges are measured by speaking a minute; "
        "by default when the profile's kv.dtype is int8",
    )


def run(
    arguments: argparse.Namespace, weights: WeightPlan, progress: OnProgress | None
) -> Manifest:
    """Export as the parsed arguments say. See `export_voxcpm2`."""
    checkpoint = resolve(arguments.checkpoint)
    wanted = load_profile(arguments.profile).kv.dtype == "int8"
    return export_voxcpm2(
        checkpoint,
        Path(arguments.out),
        weights=weights,
        profile=arguments.profile,
        name=arguments.name or Path(arguments.checkpoint).name,
        replace=arguments.force,
        int8_kv=wanted if arguments.int8_kv is None else arguments.int8_kv,
        progress=progress,
    )
