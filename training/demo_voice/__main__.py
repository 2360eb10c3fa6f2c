"""``python -m training.demo_voice STAGE --state DIR``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from training.demo_voice import curves, stages


def main() -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(prog="training.demo_voice", description=__doc__)
    stage = parser.add_subparsers(dest="stage", required=True)
    for name, text, until in (
        ("teacher", "generate teacher speech", 0),
        ("codec", "train the AudioVAE's decoder", 3000),
        ("encoder", "train the AudioVAE's encoder", 2000),
        ("voice", "train language models and flow", 22000),
        ("reconstruct", "write held-out speech as the codec gives it back", 0),
        ("hear", "word error rates of teacher and codec", 0),
        ("curves", "draw the logs", 0),
        ("samples", "let a bundle say ten held-out sentences", 0),
        ("checkpoint", "write a checkpoint from what is trained so far", 0),
    ):
        command = stage.add_parser(name, help=text)
        command.add_argument("--state", type=Path, required=True, help="folder of this training")
        if until:
            command.add_argument("--until", type=int, default=until, help="step to stop at")
        if name in ("teacher", "reconstruct"):
            count = stages.UTTERANCES if name == "teacher" else 100
            command.add_argument("--count", type=int, default=count, help="utterances")
        if name == "checkpoint":
            command.add_argument("--out", type=Path, help="folder; STATE/checkpoint unless given")
            command.add_argument("--small", action="store_true", help="in 16 bits, as it ships")
        if name == "samples":
            command.add_argument("--bundle", type=Path, required=True, help="what speaks")
            command.add_argument("--out", type=Path, required=True, help="folder")
    arguments = parser.parse_args()
    state = stages.State(arguments.state)
    if arguments.stage == "teacher":
        stages.teacher(state, arguments.count)
    elif arguments.stage == "reconstruct":
        print(json.dumps(stages.reconstruct(state, arguments.count)))
    elif arguments.stage == "hear":
        print(json.dumps(stages.hear(state)))
    elif arguments.stage == "curves":
        curves.draw(state.folder, state.folder / "curves.svg")
    elif arguments.stage == "samples":
        print(json.dumps(stages.samples(state, arguments.bundle, arguments.out)))
    elif arguments.stage == "checkpoint":
        print(json.dumps(stages.checkpoint(state, arguments.out, small=arguments.small)))
    else:
        train = {"codec": stages.codec, "encoder": stages.encoder, "voice": stages.voice}
        train[arguments.stage](state, arguments.until)


if __name__ == "__main__":
    main()
