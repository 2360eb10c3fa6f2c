"""`boardvoice serve`: speech over HTTP, for programs that speak to OpenAI's service."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from boardvoice.cli.console import complain
from boardvoice.cli.device_options import add_device_options, size_argument, voice_options
from boardvoice.default_bundle import default_bundle
from boardvoice.server.launch import serve
from boardvoice.server.notify import Notifier
from boardvoice.server.settings import ServerSettings
from boardvoice.service.unit import START_S, TOKEN_CREDENTIAL
from boardvoice.wyoming.settings import DEFAULT_PORT, WyomingSettings, parse_address
from edge_runtime.audio.load import AudioSource, load_audio
from edge_runtime.errors import UsageError
from edge_runtime.voice import Voice
from edge_runtime.voices.names import DEFAULT, OPENAI_VOICES

TOKEN_VARIABLE = "BOARDVOICE_TOKEN"
# Kept at the rate of OpenAI-made recordings at most; the encoder resamples to its own.
_REFERENCE_RATE = 48_000
_EPILOG = """\
example:
  boardvoice serve voice/
  curl http://127.0.0.1:8000/v1/audio/speech -H 'Content-Type: application/json' \\
    -d '{"input": "Now serving number forty two.", "response_format": "wav"}' -o out.wav
"""


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "serve",
        help="speak over HTTP",
        description="Serve speech over HTTP, as OpenAI's clients ask for it. Needs the extra "
        f"[serve]. A token ({TOKEN_VARIABLE} or --token-file) is needed unless only this machine "
        "can connect.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "bundle", nargs="?", metavar="BUNDLE",
        help="folder that 'export' wrote; without it, the demo voice",
    )  # fmt: skip
    add_options(parser)
    parser.set_defaults(run=_run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add everything but the bundle."""
    base = ServerSettings()
    parser.add_argument("--host", default=base.host, help="address to bind (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=base.port, help="port; 0 takes a free one (%(default)s)"
    )
    parser.add_argument("--token-file", metavar="FILE", help="file with the bearer token")
    parser.add_argument(
        "--voice", action="append", default=[], metavar="NAME=AUDIO",
        help="a voice to offer, from a recording; may be given several times",
    )  # fmt: skip
    _add_wyoming(parser)
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--queue", type=int, default=base.queue, help="requests that may wait (%(default)s)"
    )
    limits.add_argument(
        "--deadline", type=float, default=base.deadline_s, metavar="S",
        help="longest wait for a turn (%(default)g s)",
    )  # fmt: skip
    limits.add_argument(
        "--max-chars", type=int, default=base.max_chars, help="longest text (%(default)s)"
    )
    limits.add_argument(
        "--receive-timeout", type=float, default=base.receive_s, metavar="S",
        help="time for a request to arrive (%(default)g s)",
    )  # fmt: skip
    limits.add_argument(
        "--stall-timeout", type=float, default=base.stall_s, metavar="S",
        help="drop a client that takes nothing for so long (%(default)g s)",
    )  # fmt: skip
    limits.add_argument(
        "--grace", type=float, default=base.grace_s, metavar="S",
        help="time for runs to end after SIGTERM (%(default)g s)",
    )  # fmt: skip
    limits.add_argument(
        "--connections", type=int, default=base.connections, help="most at once (%(default)s)"
    )
    limits.add_argument(
        "--progress-timeout", type=float, default=base.progress_s, metavar="S",
        help="a run that makes nothing for so long hangs: no more live (%(default)g s)",
    )  # fmt: skip
    limits.add_argument(
        "--max-upload", type=size_argument, default=base.upload_bytes, metavar="SIZE",
        help="largest recording sent for a new voice (16M)",
    )  # fmt: skip
    add_device_options(parser)


def _add_wyoming(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Wyoming, for Home Assistant (needs the extra [wyoming])")
    group.add_argument(
        "--wyoming", nargs="?", const=str(DEFAULT_PORT), metavar="ADDRESS",
        help="serve Wyoming too, on PORT, HOST:PORT or unix:PATH; without one, on "
        f"127.0.0.1:{DEFAULT_PORT}",
    )  # fmt: skip
    group.add_argument(
        "--wyoming-open", action="store_true",
        help="let other machines connect although Wyoming has no token",
    )  # fmt: skip
    group.add_argument(
        "--wyoming-idle", type=float, default=WyomingSettings.idle_s, metavar="S",
        help="close a connection on which nothing is asked for so long (%(default)g s)",
    )  # fmt: skip
    group.add_argument(
        "--wyoming-languages", metavar="CODES",
        help="languages to list the voices under, such as en,de (those of the model)",
    )  # fmt: skip
    group.add_argument(
        "--zeroconf", action="store_true",
        help="announce it in the local network (needs the extra [zeroconf])",
    )  # fmt: skip


def server_settings(arguments: argparse.Namespace, token: str | None) -> ServerSettings:
    """The limits as the options say.

    Raises:
        UsageError: One is out of range.
    """
    return ServerSettings(
        host=arguments.host, port=arguments.port, token=token,
        queue=arguments.queue, deadline_s=arguments.deadline, max_chars=arguments.max_chars,
        receive_s=arguments.receive_timeout, stall_s=arguments.stall_timeout,
        grace_s=arguments.grace, connections=arguments.connections,
        progress_s=arguments.progress_timeout,
        upload_bytes=arguments.max_upload,
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    settings = server_settings(arguments, _token(arguments.token_file))
    wyoming = _wyoming(arguments)
    references = dict(map(_reference, arguments.voice))

    notifier = Notifier.here()

    def load() -> Voice:
        notifier.loading("The bundle is opened.", START_S)
        voice = Voice.load(
            str(arguments.bundle or default_bundle()), **voice_options(arguments),
            on_prepare=lambda graph, done, total: notifier.loading(
                f"Prepared {graph} for this device, {done} of {total}.", START_S
            ),
        )  # fmt: skip
        complain(f"boardvoice: ready, {voice.manifest.name}.")
        return voice

    serve(
        load, settings, references=references, wyoming=wyoming,
        bound=lambda url: complain(f"boardvoice: listening on {url}"),
        notifier=notifier,
    )  # fmt: skip
    return 0


def _wyoming(arguments: argparse.Namespace) -> WyomingSettings | None:
    if arguments.wyoming is None:
        if arguments.zeroconf or arguments.wyoming_open or arguments.wyoming_languages:
            raise UsageError("There is no --wyoming to serve.", remedy="Add --wyoming.")
        return None
    fields: dict[str, Any] = parse_address(arguments.wyoming)
    if arguments.bundle is None:
        fields |= {"languages": ("en",), "maker": ("boardvoice", "")}
    if arguments.wyoming_languages is not None:
        fields["languages"] = tuple(arguments.wyoming_languages.split(","))
    settings = WyomingSettings(
        **fields, everyone=arguments.wyoming_open, idle_s=arguments.wyoming_idle,
        announce=arguments.zeroconf,
    )  # fmt: skip
    if not settings.on_this_machine:
        complain("boardvoice: Wyoming has no token: whoever reaches its port can let it speak.")
    return settings


def _token(file: str | None) -> str | None:
    handed = os.path.join(os.environ.get("CREDENTIALS_DIRECTORY", ""), TOKEN_CREDENTIAL)
    if file is None and os.path.isabs(handed) and os.path.isfile(handed):
        file = handed
    if file is None:
        return os.environ.get(TOKEN_VARIABLE)
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The token cannot be read from {file}: {error}.", remedy="Name a text file."
        ) from error


def _reference(argument: str) -> tuple[str, AudioSource]:
    name, _, file = argument.partition("=")
    if not name or not file or name == DEFAULT or name in OPENAI_VOICES:
        raise UsageError(
            f"--voice is {argument!r}.",
            remedy="It must be NAME=AUDIO, and the name none of OpenAI's.",
        )
    # Read once and here: what a request names is never a file.
    return name, (load_audio(file, _REFERENCE_RATE), _REFERENCE_RATE)
