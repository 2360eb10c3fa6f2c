"""`boardvoice prepare`: make a bundle ready for this device, once."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from boardvoice.cli.console import complain, print_json
from boardvoice.cli.progress import prepare_bar
from device_profiles.catalog import usable_cpus
from device_profiles.schema import Profile
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.session_settings import SessionSettings
from edge_runtime.bundle import Bundle
from edge_runtime.errors import PrepareError
from edge_runtime.loader import (
    LoadOptions,
    check_description,
    engine_cache,
    memory_settings,
    place_graphs,
    placed_backend,
    usable_profile,
)
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_bundle import find_prepared, make_prepared
from edge_runtime.state_folder import state_folder


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "prepare",
        help="make a bundle ready for this device, once",
        description="Optimize a bundle's graphs for this CPU and keep their packed weights in "
        "files, which the kernel can drop under pressure. Loading a large bundle does this by "
        "itself the first time. Engines of TensorRT are built as well, where the profile has it. "
        "The files lie in the state folder (BOARDVOICE_STATE).",
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="folder that 'export' wrote")
    parser.add_argument("--profile", metavar="NAME", help="device profile")
    parser.add_argument("--force", action="store_true", help="prepare it again")
    parser.add_argument(
        "--check", action="store_true", help="check the SHA-256 of every prepared file"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    profile = usable_profile(arguments.profile)
    bundle = Bundle.open(arguments.bundle)
    check_description(bundle, profile)
    settings, state = SessionSettings.of(profile), state_folder()
    key = PreparationKey.of(bundle, kv_dtype=profile.kv.dtype, settings=settings)
    found = None if arguments.force else find_prepared(bundle, key, state)
    if found is not None and arguments.check and (damaged := found.damaged()):
        shutil.rmtree(found.folder, ignore_errors=True)
        raise PrepareError(
            f"{found.folder}: {', '.join(damaged)} changed since they were made; all removed.",
            remedy="Prepare the bundle again, and mistrust this disk.",
        )
    made = found is None
    guard = MemoryGuard(memory_settings(profile, LoadOptions()))
    if found is None:
        with prepare_bar(shown=not (arguments.quiet or arguments.json)) as progress:
            found = make_prepared(
                bundle, key, state, guard,
                threads=usable_cpus(), progress=progress, again=arguments.force,
            )  # fmt: skip
    engines, notes = _engines(bundle, profile, guard)
    size = sum(file.size for file in found.info.files.values())
    if arguments.json:
        outcome = {
            "folder": str(found.folder),
            "made": made,
            "bytes": size,
            "runtime": found.info.runtime,
            "engines": {name: str(folder) for name, folder in engines.items()},
            "notes": notes,
            "costs": {name: cost.model_dump() for name, cost in found.info.costs.items()},
        }
        print_json(outcome)
    elif not arguments.quiet:
        word = "prepared" if made else "already prepared"
        complain(f"{found.folder}: {word}, {size / 1e6:.1f} MB")
        for name, folder in engines.items():
            complain(f"{folder}: engine of {name}")
    return 0


def _engines(
    bundle: Bundle, profile: Profile, guard: MemoryGuard
) -> tuple[dict[str, Path], list[str]]:
    """Build TensorRT's engines, where the profile has it and it works; and what was in the way."""
    if all(entry.name != "tensorrt" for entry in profile.providers):
        return {}, []
    cache = engine_cache(profile)
    plan = place_graphs(profile, cache, guard)
    cpu = OrtBackend(usable_cpus(), spinning=False)
    backend = placed_backend(cpu, plan, profile, bundle, cache, guard)
    engines = backend.build_engines()
    notes = [*plan.notes, *backend.report.notes]
    for note in plan.notes:
        complain(note)
    return engines, notes
