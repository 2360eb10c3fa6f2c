"""`boardvoice tune`: find the fastest way to run a bundle on this device, and keep to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from boardvoice.cli.console import complain, print_json, result_console
from boardvoice.cli.device_options import add_device_options, voice_options
from boardvoice.cli.progress import prepare_bar
from edge_runtime.bench.measure import TEXT, BenchPlan
from edge_runtime.bundle import Bundle
from edge_runtime.errors import UsageError
from edge_runtime.loader import LoadOptions, usable_profile
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.runtime_choice import RuntimeChoice
from edge_runtime.state_folder import state_folder
from edge_runtime.tune.search import OnTrial
from edge_runtime.tune.tuned import (
    Tuned,
    TunedRuntime,
    find_tuned,
    forget_tuned,
    keep_tuned,
    require_keepable,
)
from edge_runtime.tune.tuner import tune_bundle


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "tune",
        help="find the fastest way to run a bundle on this device, and keep to it",
        description="Speak real patches with other threads, cores, spinning and overlap, in turn "
        "with the best so far. What is better by a margin is kept in the state folder and used "
        "from then on, unless --threads is given or a profile is named that says how to run.",
    )
    parser.add_argument(
        "bundles", metavar="BUNDLE", nargs="+",
        help="folder that 'export' wrote; several of one voice are set beside each other",
    )  # fmt: skip
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="show what was found earlier")
    what.add_argument("--forget", action="store_true", help="remove it: back to the profile")
    parser.add_argument("--text", default=TEXT, help="text to speak (%(default)r)")
    parser.add_argument("--patches", type=int, default=4, help="patches per run (%(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=6, help="alternating runs per comparison (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no table")
    add_device_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.rounds <= 100:
        raise UsageError(f"rounds is {arguments.rounds}.", remedy="It must be 1 to 100.")
    if arguments.threads is not None:
        raise UsageError("tune chooses the threads.", remedy="Leave --threads out.")
    act = _forget if arguments.forget else _show_kept if arguments.show else _tune
    found = {bundle: act(bundle, arguments) for bundle in arguments.bundles}
    if arguments.json:
        print_json({"bundles": found, "fastest": _fastest(found)})
    elif not arguments.quiet and len(found) > 1 and (fastest := _fastest(found)):
        complain(f"The fastest of these: {fastest}.")
    return 0


def _tune(bundle: str, arguments: argparse.Namespace) -> dict[str, Any]:
    plan = BenchPlan(text=arguments.text, patches=arguments.patches, cold=False)
    shown = not (arguments.quiet or arguments.json)
    require_keepable(_key(bundle, arguments), state_folder())
    with prepare_bar(shown=shown) as progress:
        load = LoadOptions(**voice_options(arguments), on_prepare=progress)
        with _trials(shown=shown) as tell:
            tuned, key = tune_bundle(
                bundle, load, plan, rounds=arguments.rounds, on_trial=tell
            )  # fmt: skip
    file = keep_tuned(tuned, key, state_folder())
    if shown:
        _show(bundle, tuned)
        complain(f"Kept in {file}; --forget removes it.")
    return {**tuned.model_dump(mode="json"), "file": str(file)}


def _show_kept(bundle: str, arguments: argparse.Namespace) -> dict[str, Any]:
    tuned = find_tuned(_key(bundle, arguments), state_folder())
    if not (arguments.quiet or arguments.json):
        if tuned is None:
            complain(f"{bundle} was not tuned on this device, as it is now.")
        else:
            _show(bundle, tuned)
    return {"tuned": False} if tuned is None else tuned.model_dump(mode="json")


def _forget(bundle: str, arguments: argparse.Namespace) -> dict[str, Any]:
    gone = forget_tuned(_key(bundle, arguments), state_folder())
    if not (arguments.quiet or arguments.json):
        complain(f"{bundle}: {'forgotten' if gone else 'there was nothing to forget'}.")
    return {"forgotten": gone}


def _key(bundle: str, arguments: argparse.Namespace) -> PreparationKey:
    profile = usable_profile(arguments.profile)
    return PreparationKey.of(Bundle.open(bundle, verify=False), kv_dtype=profile.kv.dtype)


def _fastest(found: dict[str, dict[str, Any]]) -> str | None:
    """The bundle whose choice has the shortest patch; bundles are measured one after another."""
    times = {name: time for name, each in found.items() if (time := _patch_ms(each)) is not None}
    return min(times, key=lambda name: times[name]) if times else None


def _patch_ms(found: dict[str, Any]) -> float | None:
    """Wall time per patch of the choice, from the last trial that it was part of."""
    for trial in reversed(found.get("trials", ())):
        if trial["candidate"] == found["choice"]:
            return float(trial["patch_ms"])
        if trial["beside"] == found["choice"]:
            return float(trial["beside_patch_ms"])
    return None


@contextmanager
def _trials(*, shown: bool) -> Iterator[OnTrial]:
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda _candidate, _best: None
        return
    with console.status("") as status:

        def tell(candidate: RuntimeChoice, best: RuntimeChoice) -> None:
            sides = (_words(TunedRuntime.of(each)) for each in (candidate, best))
            status.update(" beside ".join(sides))

        yield tell


def _show(bundle: str, tuned: Tuned) -> None:
    table = Table("tried", "beside", "ms per patch", "ratio", "CPU-s per patch", "ratio", "")
    for trial in tuned.trials:
        table.add_row(
            _words(trial.candidate),
            _words(trial.beside),
            f"{trial.patch_ms:.4g} / {trial.beside_patch_ms:.4g}",
            f"{trial.ratio:.3f}",
            f"{trial.cpu_s_per_patch:.3g} / {trial.beside_cpu_s_per_patch:.3g}",
            f"{trial.cpu_ratio:.3f}",
            "taken" if trial.taken else "",
        )
    same = " (as the profile says)" if tuned.choice == tuned.start else ""
    with result_console() as console:
        console.print(table)
        console.print(f"{Path(bundle).name}: {_words(tuned.choice)}{same}.", soft_wrap=True)


def _words(choice: TunedRuntime) -> str:
    threads = f"{choice.threads} thread{'s' * (choice.threads > 1)}"
    where = f" on CPU {','.join(map(str, choice.cores))}" if choice.cores else ""
    overlap = ", overlap" if choice.overlap_vae else ""
    return f"{threads}{where}, {'' if choice.spinning else 'not '}spinning{overlap}"
