"""`boardvoice service`: the server as a service of systemd."""

from __future__ import annotations

import argparse
import grp
import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from boardvoice.cli.console import complain, print_json, result_console, write_result
from boardvoice.cli.serve import add_options, server_settings
from boardvoice.default_bundle import demo_checkpoint
from boardvoice.server.settings import is_loopback
from boardvoice.service import sandbox
from boardvoice.service.installation import Installation
from boardvoice.service.memory_bounds import memory_bounds
from boardvoice.service.needed import below_covered, program_folders, require_readable
from boardvoice.service.systemctl import Systemctl
from boardvoice.service.unit import ServicePlan, unit_text
from device_profiles.catalog import FoundProfile, ProfileLoadError, find_profile
from device_profiles.detect import detect
from edge_runtime.bundle import Bundle
from edge_runtime.errors import DependencyError, ProfileError, ServiceError, UsageError

_MIB = 1 << 20
# Credentials came with systemd 247, without which the token's file could not be root's alone.
_CREDENTIALS_SINCE = 247
_ANY_TOKEN = "any token"


@dataclass(frozen=True)
class _ServerOptions:
    """Options of `serve`, as words with absolute paths."""

    words: tuple[str, ...]
    files: tuple[Path, ...]
    token_file: Path | None


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "service",
        help="have systemd keep the server running",
        description="The server as a service of systemd: within the board's memory, in a sandbox, "
        "started again when it fails or hangs.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    install = _action(actions, "install", _install, "write the unit and start it")
    install.add_argument(
        "bundle", nargs="?", metavar="BUNDLE",
        help="folder that 'export' wrote; without it, the demo voice",
    )  # fmt: skip
    install.add_argument("--dry-run", action="store_true", help="print the unit, change nothing")
    install.add_argument(
        "--state", metavar="DIR",
        help="the one folder to write, such as a data disk of a read-only system; the service runs "
        "as its owner",
    )  # fmt: skip
    install.add_argument("--no-start", action="store_true", help="at the next boot only")
    add_options(install)
    remove = _action(actions, "uninstall", _uninstall, "stop the service and remove the unit")
    remove.add_argument("--purge", action="store_true", help="remove what it kept, too")
    status = _action(actions, "status", _status, "how the service is")
    status.add_argument("--json", action="store_true", help="print it as JSON")


def _action(actions: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    parser.add_argument("--user", action="store_true", help="a service of your own, without root")
    parser.add_argument("--name", default="boardvoice", help="name of the service (%(default)s)")
    parser.set_defaults(run=run)
    return parser


def _install(arguments: argparse.Namespace) -> int:
    place = Installation.of(arguments.name, user=arguments.user)
    options = _server_options(arguments)
    plan = _plan(arguments, options, place)
    text = unit_text(plan)
    if arguments.dry_run:
        write_result(text)
        return 0
    place.require_rights()
    if not arguments.user:
        uid = pwd.getpwnam(plan.owner).pw_uid if plan.owner else None
        require_readable(
            [Path(plan.command[0]), Path(__file__).parents[1], *_read(arguments.bundle, options)],
            uid=uid,
        )
    place.install(text, start=not arguments.no_start)
    complain(f"{place.file}: written, and started at every boot.")
    if not Systemctl.runs_here():
        complain("systemd does not run here now: the service starts when it does.")
    elif not arguments.no_start:
        own = " --user" if arguments.user else ""
        complain(f"Starting. boardvoice service status{own} tells when the voice is loaded.")
    if arguments.user:
        complain("It ends when you log out, unless: loginctl enable-linger")
    return 0


def _uninstall(arguments: argparse.Namespace) -> int:
    place = Installation.of(arguments.name, user=arguments.user)
    place.uninstall(purge=arguments.purge)
    complain(f"{place.file}: removed.")
    if not arguments.purge:
        complain("What it kept stays; --purge would have removed it.")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    place = Installation.of(arguments.name, user=arguments.user)
    state = place.state()
    if arguments.json:
        print_json(state)
    else:
        table = Table(place.unit, "", show_header=True)
        for name, value in state.items():
            table.add_row(name, value)
        with result_console(markup=False) as console:
            console.print(table)
    if state.get("ActiveState") != "active":
        error = ServiceError(
            f"{place.unit} is {state.get('ActiveState') or 'unknown'}"
            f" ({state.get('LoadState') or 'unknown'}, {state.get('Result') or 'no result'}).",
            remedy=f"See journalctl{' --user' if arguments.user else ''} -u {place.unit}.",
        )
        complain(f"boardvoice: {error}")
        return error.exit_code
    return 0


def _server_options(arguments: argparse.Namespace) -> _ServerOptions:
    """Check them now: as a service, the server could tell nobody but its log."""
    token = Path(arguments.token_file).absolute() if arguments.token_file else None
    if token is not None and not token.is_file():
        raise UsageError(f"There is no token in {token}.", remedy="Name a text file.")
    if token is None and not is_loopback(arguments.host):
        raise UsageError(
            f"{arguments.host} can be reached from other machines, and there is no token.",
            remedy="Give --token-file, or bind to 127.0.0.1.",
        )
    # The token itself is read as the server starts.
    server_settings(arguments, token=_ANY_TOKEN)
    words: list[str] = []
    files: list[Path] = []
    plain = argparse.ArgumentParser(add_help=False)
    add_options(plain)
    for action in plain._actions:
        given = getattr(arguments, action.dest)
        if given != action.default and action.dest != "token_file":
            for value in given if isinstance(given, list) else [given]:
                words += _option(action, value, files)
    return _ServerOptions(tuple(words), tuple(files), token)


def _option(action: argparse.Action, value: Any, files: list[Path]) -> list[str]:
    """The words that say it again, from any folder."""
    if isinstance(value, bool):
        return [action.option_strings[0 if value else -1]]
    text = str(value)
    if action.dest == "voice":
        name, _, audio = text.partition("=")
        files.append(Path(audio).absolute())
        text = f"{name}={files[-1]}"
    if action.dest == "profile" and (os.sep in text or text.endswith((".yaml", ".yml"))):
        files.append(Path(text).absolute())
        text = str(files[-1])
    return [action.option_strings[0], text]


def _plan(
    arguments: argparse.Namespace, options: _ServerOptions, place: Installation
) -> ServicePlan:
    bundle = arguments.bundle
    found = _profile(arguments.profile)
    folder = Path(bundle).absolute() if bundle else demo_checkpoint().parent
    state, owner = _state(arguments)
    command = [sys.executable, "-m", "boardvoice", "serve", *([str(folder)] if bundle else [])]
    command += options.words
    if arguments.user and options.token_file is not None:
        command += ["--token-file", str(options.token_file)]
    version = _systemd_version(place)
    by_credential = options.token_file if not arguments.user else None
    if by_credential is not None and version is not None and version < _CREDENTIALS_SINCE:
        raise DependencyError(
            f"systemd {version} cannot hand a token over ({_CREDENTIALS_SINCE} can).",
            remedy="Bind to 127.0.0.1 and put a proxy before it, or give --user.",
        )
    profile = found.profile
    return ServicePlan(
        name=place.name,
        command=tuple(command),
        bundle=folder,
        profile=profile,
        reasons=found.reasons,
        user_scope=arguments.user,
        bounds=memory_bounds(
            profile.memory,
            weights=_weights(bundle),
            total=detect().memory_mib * _MIB,
            hard=arguments.memory_limit,
            soft=arguments.memory_soft,
        ),
        state=state,
        owner=owner,
        groups=tuple(name for name in sandbox.groups(profile) if _group_exists(name)),
        shown=tuple(below_covered([*program_folders(), *_read(bundle, options)])),
        token_file=by_credential,
        loopback=is_loopback(arguments.host),
        grace_s=arguments.grace,
        systemd=version,
    )


def _profile(name: str | None) -> FoundProfile:
    try:
        return find_profile(name)
    except ProfileLoadError as error:
        raise ProfileError(f"{error}.") from error


def _weights(bundle: str | None) -> int:
    """Bytes of the bundle's weights; the demo voice has next to none.

    Raises:
        BundleError: There is no such bundle.
    """
    if bundle is None:
        return 0
    files = Bundle.open(bundle, verify=False).manifest.files
    return sum(entry.size for name, entry in files.items() if name.endswith(".weights"))


def _read(bundle: str | None, options: _ServerOptions) -> list[Path]:
    return [*([Path(bundle).absolute()] if bundle else []), *options.files]


def _state(arguments: argparse.Namespace) -> tuple[Path | None, str]:
    """The folder that is written, and who owns it."""
    if arguments.state is None:
        return None, ""
    state = Path(arguments.state).absolute()
    try:
        owner = pwd.getpwuid(state.stat().st_uid).pw_name
    except (OSError, KeyError) as error:
        raise UsageError(
            f"--state: {state} is no folder of a known user: {error}.",
            remedy="Make it, and give it to a user of its own: chown USER DIR.",
        ) from error
    if not state.is_dir() or (owner == "root" and not arguments.user):
        what = "root's" if state.is_dir() else "no folder"
        raise UsageError(
            f"--state: {state} is {what}.",
            remedy="The service runs as the folder's owner: give it to a user of its own.",
        )
    return state, owner


def _systemd_version(place: Installation) -> int | None:
    try:
        return place.systemctl.version()
    except (DependencyError, ServiceError):
        # A unit can be printed for another machine.
        return None


def _group_exists(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
