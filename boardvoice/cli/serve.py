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
        load, settings, references=references,
        bound=lambda url: complain(f"boardvoice: listening on {url}"),
        notifier=notifier,
    )  # fmt: skip
    return 0


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
