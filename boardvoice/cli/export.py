"""`boardvoice export FAMILY`: one subcommand per model family found in `export`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
from pathlib import Path
from typing import Any

import export as families
from boardvoice.cli.console import complain, print_json
from boardvoice.cli.progress import export_bar
from device_profiles.catalog import ProfileLoadError, load_profile
from device_profiles.schema import WeightsSection
from device_profiles.weight_formats import PlanName
from edge_runtime.bundle import Bundle, Manifest
from edge_runtime.errors import ProfileError, UsageError
from edge_runtime.npu.flow_entry import NpuFlowEntry
from export.weights.oldest_runtime import check_formats
from export.weights.plan import WeightPlan


def add_parser(commands: Any) -> None:
    """Add the subcommand and, below it, one per family."""
    parser = commands.add_parser(
        "export",
        help="write a bundle from an official checkpoint",
        description="Write a bundle of ONNX step graphs from an official checkpoint. No torch.",
    )
    kinds = parser.add_subparsers(title="model families", metavar="FAMILY", required=True)
    for name in _families():
        command = importlib.import_module(f"export.{name}.command")
        family = kinds.add_parser(name, help=command.SUMMARY, description=command.SUMMARY)
        command.add_arguments(family)
        family.add_argument("--out", required=True, metavar="BUNDLE", help="bundle folder to write")
        family.add_argument(
            "--profile", metavar="NAME", help="device profile (name or .yaml) it is meant for"
        )
        family.add_argument(
            "--weights",
            choices=("f32", "f16", "int8", "int4"),
            help="weight plan; by default the profile's (int8)",
        )
        family.add_argument(
            "--format",
            action="append",
            default=[],
            metavar="KIND=FORMAT",
            help="format of some layers, such as lm=int4-32 or flow.down=int8-128; repeatable",
        )
        family.add_argument("--name", help="what the voice is called")
        family.add_argument("--force", action="store_true", help="replace an existing bundle")
        family.add_argument("--json", action="store_true", help="print the outcome as JSON")
        family.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
        family.set_defaults(run=_run, command=command)


def _families() -> list[str]:
    return sorted(
        module.name
        for module in pkgutil.iter_modules(families.__path__)
        if module.ispkg and importlib.util.find_spec(f"export.{module.name}.command")
    )


def _run(arguments: argparse.Namespace) -> int:
    try:
        profile = load_profile(arguments.profile)
    except ProfileLoadError as error:
        raise ProfileError(f"{error}.") from error
    plan = _plan(arguments.weights, arguments.format, profile.weights)
    check_formats(plan, profile)
    with export_bar(shown=not (arguments.quiet or arguments.json)) as progress:
        manifest = arguments.command.run(arguments, plan, progress)
    out = Path(arguments.out)
    size = sum(file.size for file in manifest.files.values())
    if arguments.json:
        outcome = {
            "bundle": str(out),
            "family": manifest.family,
            "name": manifest.name,
            "weights": manifest.weights,
            "formats": manifest.formats,
            "profile": manifest.profile,
            "bytes": size,
            "files": len(manifest.files),
            "npu": _npu(out, manifest),
        }
        print_json(outcome)
    else:
        complain(
            f"{out}: {manifest.family} {manifest.name!r}, {manifest.weights}, "
            f"{size / 1e6:.1f} MB in {len(manifest.files)} files"
        )
        if (npu := NpuFlowEntry.of(Bundle(out, manifest))) is not None:
            complain(
                f"NPU ({npu.target}, {npu.precision}): {npu.operators} operators, "
                f"{len(npu.cpu_operators)} on the CPU, {npu.cycles / 1e6:.2f} Mcycles per "
                f"evaluation, {npu.memory_bytes / 1e6:.1f} MB, rknn-toolkit2 {npu.toolkit}"
            )
    return 0


def _npu(out: Path, manifest: Manifest) -> dict[str, Any] | None:
    entry = NpuFlowEntry.of(Bundle(out, manifest))
    return None if entry is None else entry.model_dump(mode="json")


def _plan(weights: PlanName | None, formats: list[str], profile: WeightsSection) -> WeightPlan:
    """What the options say over what the profile says; its formats belong to its own plan."""
    choices = dict(profile.formats) if weights is None else {}
    for text in formats:
        kind, equals, name = text.partition("=")
        if not (kind and equals and name):
            raise UsageError(
                f"--format {text!r} is not KIND=FORMAT.", remedy="Write lm=int4-32, for example."
            )
        # A kind that is named again counts from here: the last option wins.
        choices.pop(kind, None)
        choices[kind] = name
    return WeightPlan.named(weights or profile.plan, choices)
