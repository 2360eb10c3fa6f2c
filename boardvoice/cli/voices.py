"""`boardvoice voices`: voices of this device, added once from a recording."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from boardvoice.cli.console import complain, print_json, result_console
from boardvoice.cli.device_options import add_device_options, load_voice
from boardvoice.default_bundle import default_bundle
from edge_runtime.errors import UsageError, VoiceError
from edge_runtime.voices.names import check_name
from edge_runtime.voices.store import TornVoice, VoiceStore
from edge_runtime.voices.stored_voice import StoredVoice


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "voices",
        help="voices of this device: add one from a recording, list, remove",
        description="Voices are encoded once and kept in the state folder (BOARDVOICE_STATE); the "
        "recording is not needed afterwards. 'say --voice NAME' and 'serve' speak with them.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add = actions.add_parser(
        "add", help="add a voice", description="Add a voice from a recording of 1 to 30 s."
    )
    add.add_argument("name", metavar="NAME", help="a-z, 0-9, - and _")
    add.add_argument("clip", metavar="CLIP", help="recording of clear speech")
    add.add_argument("--bundle", metavar="BUNDLE", help="bundle that encodes it; the demo voice")
    add.add_argument(
        "--transcript", metavar="TEXT", default="",
        help="what is said in it: the voice then goes on from the recording",
    )  # fmt: skip
    _common(add, _add)
    add.add_argument("-q", "--quiet", action="store_true", help="say nothing")
    add_device_options(add)
    _common(actions.add_parser("list", help="list them", description="List them."), _list)
    remove = actions.add_parser("remove", help="remove a voice", description="Remove a voice.")
    remove.add_argument("name", metavar="NAME")
    _common(remove, _remove)


def _common(parser: argparse.ArgumentParser, run: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.set_defaults(run=run)


def _add(arguments: argparse.Namespace) -> int:
    check_name(arguments.name)
    if arguments.clip == "":
        raise UsageError("CLIP is empty.", remedy="Name a recording.")
    store = VoiceStore()
    store.refuse_taken(arguments.name)
    shown = not (arguments.quiet or arguments.json)
    voice = load_voice(str(arguments.bundle or default_bundle()), arguments, shown=shown)
    stored, notes = store.add(
        arguments.name, arguments.clip, voice, transcript=arguments.transcript
    )
    if arguments.json:
        print_json({**_details(stored), "notes": list(notes)})
    elif not arguments.quiet:
        for note in notes:
            complain(f"boardvoice: {note}")
        complain(f"{stored.name}: added, {stored.seconds:.2f} s at {stored.sample_rate} Hz")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    store = VoiceStore()
    store.tidy()
    entries = store.entries()
    if arguments.json:
        print_json({"folder": str(store.folder), "voices": [_details(entry) for entry in entries]})
        return 0
    table = Table("voice", "seconds", "rate", "added", "transcript", "state")
    for entry in entries:
        if isinstance(entry, TornVoice):
            table.add_row(entry.name, "", "", "", "", f"torn: {entry.reason}")
        else:
            table.add_row(
                entry.name, f"{entry.seconds:.2f}", str(entry.sample_rate), entry.added,
                entry.transcript, "good",
            )  # fmt: skip
    with result_console() as console:
        console.print(table)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    if not VoiceStore().remove(arguments.name):
        raise VoiceError(f"There is no stored voice {arguments.name!r}.")
    if arguments.json:
        print_json({"name": arguments.name, "removed": True})
    return 0


def _details(entry: StoredVoice | TornVoice) -> dict[str, Any]:
    if isinstance(entry, TornVoice):
        return {"name": entry.name, "state": "torn", "reason": entry.reason}
    return {
        "name": entry.name, "state": "good", "seconds": entry.seconds,
        "sample_rate": entry.sample_rate, "added": entry.added, "transcript": entry.transcript,
    }  # fmt: skip
