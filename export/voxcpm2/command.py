"""`boardvoice export voxcpm2`: options of this family's exporter."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from device_profiles.catalog import load_profile
from edge_runtime.bundle import Manifest
from edge_runtime.errors import UsageError
from export.checkpoint.hub import resolve
from export.progress import OnProgress
from export.voxcpm2.exporter import export_voxcpm2
from export.voxcpm2.npu_export import NpuExport
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
    parser.add_argument(
        "--npu",
        action=argparse.BooleanOptionalAction,
        help="add the flow estimator for the NPU, which takes rknn-toolkit2 ('boardvoice rknn "
        "install'); by default when the profile's flow.place is rknn",
    )
    parser.add_argument(
        "--npu-precision",
        choices=("f16", "int8"),
        help="the NPU's arithmetic; int8 is calibrated by speaking, and keeps f16 where int8 "
        "loses much; by default the profile's (f16)",
    )


def run(
    arguments: argparse.Namespace, weights: WeightPlan, progress: OnProgress | None
) -> Manifest:
    """Export as the parsed arguments say. See `export_voxcpm2`."""
    checkpoint = resolve(arguments.checkpoint)
    profile = load_profile(arguments.profile)
    wanted = profile.kv.dtype == "int8"
    npu = NpuExport.of(profile, wanted=arguments.npu, precision=arguments.npu_precision)
    if npu is None and arguments.npu_precision is not None:
        raise UsageError("--npu-precision without --npu.", remedy="Name both, or neither.")
    if npu is not None:
        out = Path(os.path.abspath(arguments.out))
        npu = replace(npu, log=out.with_name(f"{out.name}.rknn.log"))
    return export_voxcpm2(
        checkpoint,
        Path(arguments.out),
        weights=weights,
        profile=arguments.profile,
        name=arguments.name or Path(arguments.checkpoint).name,
        replace=arguments.force,
        int8_kv=wanted if arguments.int8_kv is None else arguments.int8_kv,
        npu=npu,
        progress=progress,
    )
