"""`boardvoice say`: text to a file, to standard output or to the loudspeaker."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from types import FrameType
from typing import Any

import numpy as np

from boardvoice.cli.console import complain, print_json
from boardvoice.cli.device_options import add_device_options, load_voice
from boardvoice.cli.progress import speech_bar
from boardvoice.default_bundle import default_bundle
from boardvoice.demo_voice.spoken_text import spoken_text, unheard_words
from edge_runtime.audio.pace import Pace
from edge_runtime.audio.playback import Player
from edge_runtime.audio.wav import write_wav
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import CancelledError, TextError, UsageError
from edge_runtime.presets import PRESETS
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.text.normalize import read_text_file
from edge_runtime.voice import SpeechStream
from edge_runtime.voices.store import VoiceStore

_STDOUT = "-"
_EPILOG = """\
examples:
  boardvoice say "Now serving number forty two." -o out.wav
  boardvoice say "(a calm old man) Good evening." --bundle voice/ --play
  boardvoice say --file speech.txt --bundle voice/ --reference me.flac -o speech.wav
  echo "Turn left." | boardvoice say - --bundle voice/ -o - | aplay
"""


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "say",
        help="speak a text",
        description="Speak a text. Without --bundle, the small demo voice of the package speaks: "
        "English as kiosks and robots say it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("text", nargs="?", metavar="TEXT", help="what to say; - reads stdin")
    parser.add_argument("--file", metavar="FILE", help="read the text from a file instead")
    parser.add_argument("--bundle", metavar="BUNDLE", help="folder that 'export' wrote")
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="audio file (.wav .flac .ogg .opus .mp3 .raw), or - for WAV on stdout as it is "
        "made; out.wav unless --play is given",
    )  # fmt: skip
    parser.add_argument("--play", action="store_true", help="play it while it is made")
    parser.add_argument(
        "--sound-device", metavar="NAME", help="number or part of the name; a wrong one lists them"
    )
    parser.add_argument("--volume", type=float, metavar="FACTOR", help="of --play, 0 to 1 (1)")
    parser.add_argument(
        "--json", action="store_true", help="metrics as JSON on stdout (on stderr with -o -)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    _add_voice(parser)
    _add_options(parser)
    parser.set_defaults(run=_run)


def _add_voice(parser: argparse.ArgumentParser) -> None:
    voice = parser.add_argument_group("voice")
    voice.add_argument(
        "--design", metavar="TEXT", help="describe the voice; goes in parentheses before the words"
    )
    voice.add_argument("--voice", metavar="NAME", help="a voice of 'boardvoice voices'")
    voice.add_argument("--reference", metavar="AUDIO", help="speak with the voice of this audio")
    voice.add_argument("--prompt-audio", metavar="AUDIO", help="go on from this audio")
    voice.add_argument("--prompt-text", metavar="TEXT", help="what is said in --prompt-audio")
    voice.add_argument(
        "--trim-silence", action="store_true", help="trim silence off reference and prompt"
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    base = SpeechOptions()
    how = parser.add_argument_group("how to speak")
    how.add_argument("--seed", type=int, help="same seed, same audio; drawn unless given")
    how.add_argument(
        "--preset", choices=tuple(PRESETS), default=base.preset,
        help="fewer steps for less time (%(default)s)",
    )  # fmt: skip
    how.add_argument("--steps", type=int, help="Euler steps; the preset's unless given")
    how.add_argument("--cfg", type=float, default=base.cfg, help="guidance (%(default)s)")
    how.add_argument(
        "--min-len", type=int, default=base.min_len, help="fewest patches (%(default)s)"
    )
    how.add_argument(
        "--max-len", type=int, default=base.max_len, help="most patches per chunk (%(default)s)"
    )
    how.add_argument(
        "--retry-badcase", action=argparse.BooleanOptionalAction, default=base.retry_badcase,
        help="speak a chunk again when it runs too long; never when streaming (on)",
    )  # fmt: skip
    how.add_argument(
        "--retry-times", type=int, default=base.retry_times, help="most attempts (%(default)s)"
    )
    how.add_argument(
        "--retry-ratio", type=float, default=base.retry_ratio,
        help="patches per token that are too long (%(default)s)",
    )  # fmt: skip
    how.add_argument(
        "--chunk-rows", type=int, help="KV rows one chunk may need; the profile's unless given"
    )
    add_device_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    for name in ("bundle", "output", "file", "reference", "prompt_audio"):
        if getattr(arguments, name) == "":
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is empty.", remedy="Name a file or leave it out.")
    _check_sound(arguments)
    text = _text(arguments)
    names = {field.name for field in fields(SpeechOptions)}
    options = SpeechOptions(
        **{name: value for name, value in vars(arguments).items() if name in names}
    )
    output = arguments.output or (None if arguments.play else "out.wav")
    bundle = arguments.bundle or default_bundle()
    notes = []
    if not arguments.bundle:
        text = spoken_text(text)
        notes = _unheard(text)
    if arguments.voice is not None and arguments.reference is not None:
        raise UsageError("--voice and --reference name two voices.", remedy="Give one of them.")
    stored = None if arguments.voice is None else VoiceStore().get(arguments.voice)
    shown = not (arguments.quiet or arguments.json or output == _STDOUT)
    voice = load_voice(str(bundle), arguments, shown=shown)
    cancel = CancelToken()
    with _cancelled_by_signals(cancel) as received, speech_bar(shown=shown) as progress:
        stream = voice.stream(
            text,
            reference=arguments.reference if stored is None else stored,
            prompt_audio=arguments.prompt_audio,
            prompt_text=arguments.prompt_text,
            options=options,
            cancel=cancel,
            progress=progress,
            # What is heard at once cannot be taken back.
            retry=output != _STDOUT and not arguments.play,
        )
        with stream, contextlib.suppress(CancelledError):
            _send(stream, output, player=lambda: _player(arguments, stream, text), cancel=cancel)
    _report(arguments, stream.metrics, output, str(bundle), notes)
    return 128 + received[0] if received else 0


def _text(arguments: argparse.Namespace) -> str:
    if (arguments.text is None) == (arguments.file is None):
        raise UsageError("Give the text, or --file, and not both.", remedy="'-' reads stdin.")
    if arguments.file is not None:
        text = read_text_file(arguments.file)
    elif arguments.text == _STDOUT:
        text = read_text_file(_STDOUT)
    else:
        text = str(arguments.text)
    if arguments.design is None:
        return text
    design = arguments.design.strip().removeprefix("(").removesuffix(")").strip()
    if not any(map(str.isalnum, design)):
        raise TextError("The voice design is empty.", remedy="Describe a voice or leave it out.")
    if not text.strip():
        raise TextError("The text is empty.", remedy="Give something to say.")
    return f"({design}){text}"


def _unheard(text: str) -> list[str]:
    unheard = unheard_words(text)
    if not unheard:
        return []
    names = ", ".join(unheard[:5]) + (", ..." if len(unheard) > 5 else "")
    return [
        f"the demo voice was not trained on these words and may say them wrong: {names}; "
        "name a --bundle for other texts"
    ]


def _check_sound(arguments: argparse.Namespace) -> None:
    for name in ("sound_device", "volume"):
        if getattr(arguments, name) is not None and not arguments.play:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for --play.", remedy="Add --play or leave it out.")
    if arguments.sound_device == "":
        raise UsageError("--sound-device is empty.", remedy="Name a device or leave it out.")
    if arguments.volume is not None and not 0 <= arguments.volume <= 1:
        raise UsageError(f"--volume is {arguments.volume}.", remedy="It must be 0 to 1.")


def _player(arguments: argparse.Namespace, stream: SpeechStream, text: str) -> Player | None:
    if not arguments.play:
        return None
    device = arguments.sound_device
    return Player(
        stream.sample_rate,
        device=int(device) if device is not None and device.isdecimal() else device,
        volume=1.0 if arguments.volume is None else arguments.volume,
        pace=Pace.of_text(text),
    )


def _send(
    stream: SpeechStream,
    output: str | None,
    *,
    player: Callable[[], Player | None],
    cancel: CancelToken,
) -> None:
    """Play and write the audio piece by piece.

    Raises:
        CancelledError: The run was cancelled; no file was written.
    """
    with contextlib.ExitStack() as stack:
        opened = player()
        if opened is not None:
            # After it was closed: gaps may come until the end.
            stack.callback(_tell_playing, opened, stream.metrics)
            stack.enter_context(opened)
        pieces = _played(stream, opened, cancel)
        if output is None:
            for _ in pieces:
                pass
        else:
            write_wav(output, pieces, stream.sample_rate)


def _tell_playing(player: Player, metrics: SpeechMetrics) -> None:
    metrics.warnings.extend(player.notes)
    if player.underruns:
        metrics.warnings.append(f"Audio came too late {player.underruns} times; gaps were heard.")


def _played(
    stream: SpeechStream, player: Player | None, cancel: CancelToken
) -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
    for samples in stream:
        if player is not None:
            player.write(samples)
        yield samples
    if cancel.cancelled:
        # Raised inside the writer, so that a cancelled run leaves no file behind.
        raise CancelledError("The run was cancelled.")


@contextlib.contextmanager
def _cancelled_by_signals(cancel: CancelToken) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end the run within one patch; a second Ctrl-C ends the process."""
    received: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        cancel.cancel()

    previous = {
        number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _report(
    arguments: argparse.Namespace,
    metrics: SpeechMetrics,
    output: str | None,
    bundle: str,
    notes: list[str],
) -> None:
    streamed = output == _STDOUT
    warnings = [*notes, *metrics.warnings]
    if arguments.json:
        details = {**metrics.as_dict(), "warnings": warnings, "output": output, "bundle": bundle}
        print_json(details, sys.stderr if streamed else None)
        return
    for warning in warnings:
        # Once is enough for what was logged while it ran.
        if warning not in arguments.log.said:
            complain(f"boardvoice: {warning}")
    if arguments.quiet:
        return
    where = "played" if output is None else "stdout" if streamed else output
    if metrics.stop_reason == "cancelled":
        where = "cancelled"
    rtf = f"{metrics.wall_s / metrics.audio_s:.2f}" if metrics.samples else "-"
    complain(
        f"{where}: {metrics.audio_s:.2f} s at {metrics.sample_rate} Hz, {metrics.patches} patches, "
        f"ended by {metrics.stop_reason}, first audio after {metrics.first_audio_ms:.0f} ms, "
        f"RTF {rtf}, seed {metrics.seed}"
    )
