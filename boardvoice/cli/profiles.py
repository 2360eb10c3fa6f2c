"""`boardvoice profiles`: which device profiles there are, which one fits here, and why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from boardvoice.cli.console import print_json, result_console, write_result
from device_profiles.catalog import (
    PROFILE_VARIABLE,
    FoundProfile,
    ProfileLoadError,
    find_profile,
    profile_names,
)
from device_profiles.detect import detect
from device_profiles.json_schema import profile_json_schema
from edge_runtime.backends.providers import ProviderCheck, check_providers
from edge_runtime.errors import ProfileError, UsageError
from edge_runtime.loader import engine_cache
from edge_runtime.memory.limits import MemorySettings, current_limits
from edge_runtime.placement import plan_placement
from edge_runtime.requirements import installed_versions, shortfalls

_MIB = 1 << 20


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "profiles",
        help="device profiles: which there are, which one fits here, and why",
        description="Profiles say what a board runs and within which limits. The board is "
        f"recognized, unless --profile or {PROFILE_VARIABLE} names a profile or a file.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _action(actions, "list", _list, "every profile")
    show = _action(actions, "show", _show, "one profile, with what it inherits")
    show.add_argument("name", metavar="NAME", nargs="?", help="a name or a file; this board's")
    explain = _action(
        actions, "explain", _explain, "facts of this board and the choice they lead to"
    )
    explain.add_argument(
        "--root", default="/", metavar="DIR", help="read the facts below this folder"
    )
    explain.add_argument("--machine", help="what 'uname -m' says there")
    actions.add_parser("schema", help="JSON Schema of profile files").set_defaults(run=_schema)


def _action(actions: Any, name: str, run: Any, words: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=words, description=f"Show {words}."
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)
    return parser


def _list(arguments: argparse.Namespace) -> int:
    found = [_find(name) for name in profile_names()]
    if arguments.json:
        print_json({
            "profiles": [
                {"name": one.profile.name, "title": one.profile.title, "file": one.sources[0],
                 "verified": one.profile.verified}
                for one in found
            ]
        })  # fmt: skip
        return 0
    table = Table("profile", "title", "chip", "providers", "flow on", "verified on hardware")
    for one in found:
        profile = one.profile
        table.add_row(
            profile.name, profile.title, profile.soc,
            " ".join(provider.name for provider in profile.providers),
            profile.flow.place, "yes" if profile.verified else "no",
        )  # fmt: skip
    _print(table)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    found = _find(arguments.name)
    data = found.profile.model_dump(mode="json")
    if arguments.json:
        print_json({"profile": data, "files": list(found.sources), "reasons": list(found.reasons)})
        return 0
    lines = [f"# {source}" for source in found.sources]
    lines += [f"# chosen by: {reason}" for reason in found.reasons]
    lines.append(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    write_result("\n".join(lines))
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    root = Path(arguments.root)
    if not root.is_dir():
        raise UsageError(
            f"--root: {root} is no folder.", remedy="Name one with proc and sys in it."
        )
    facts = detect(root, machine=arguments.machine)
    found = _find(None, machine=arguments.machine, root=root)
    # Providers can only be tried on the board itself.
    here = root.resolve() == Path("/")
    checks: tuple[ProviderCheck, ...] = ()
    if here:
        checks = check_providers(found.profile, engines=engine_cache(found.profile))
    missing = shortfalls(found.profile, installed_versions(facts))
    notes = [f"Profile {found.profile.name}: {one.reason}. {one.remedy}" for one in missing]
    # Elsewhere they are taken to work: what is left to say does not depend on them.
    assumed = checks or [ProviderCheck(one.name, one.name) for one in found.profile.providers]
    placement = plan_placement(found.profile, assumed, missing)
    notes += [*placement.notes, *filter(None, (placement.npu_note,))]
    limits = current_limits(
        MemorySettings(reserve_bytes=found.profile.memory.reserve_mib * _MIB), root
    )
    if arguments.json:
        print_json({
            "facts": [
                {"name": fact.name, "value": fact.value, "source": fact.source}
                for fact in facts.facts()
            ],
            "profile": found.profile.name,
            "files": list(found.sources),
            "reasons": list(found.reasons),
            "memory_limits": [
                {"name": limit.name, "available_bytes": limit.available} for limit in limits
            ],
            "providers": [
                {"name": check.name, "works": check.passed, "reason": check.reason,
                 "remedy": check.remedy, "attention": check.attention}
                for check in checks
            ],
            "notes": notes,
        })  # fmt: skip
        return 0
    table = Table("fact", "value", "read from", title="Facts", title_justify="left")
    for fact in facts.facts():
        table.add_row(fact.name, fact.value or "-", fact.source)
    lines = [
        f"Profile: {found.profile.name} ({found.profile.title})",
        *_points("because", found.reasons),
        *_points("file", found.sources),
        *_points("memory", [f"{lim.name}: {lim.available // _MIB} MiB left" for lim in limits]),
        *_points("provider", [f"{c.name}: {c.reason or 'computes right numbers'}" for c in checks]),
        *_points("note", notes),
        "Verified on hardware: " + (found.profile.verified or "no"),
    ]
    _print(table)
    write_result("\n".join(lines) + "\n")
    return 0


def _schema(_arguments: argparse.Namespace) -> int:
    write_result(profile_json_schema())
    return 0


def _find(name: str | None, *, machine: str | None = None, root: Path = Path("/")) -> FoundProfile:
    try:
        return find_profile(name, machine=machine, root=root)
    except ProfileLoadError as error:
        raise ProfileError(f"{error}.") from error


def _points(word: str, lines: Sequence[str]) -> list[str]:
    return [f"  {word}: {line}" for line in lines]


def _print(table: Table) -> None:
    with result_console(150) as console:
        console.print(table)
