"""``python -m training.demo_voice STAGE --state DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path

from training.demo_voice import stages


def main() -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(prog="training.demo_voice", description=__doc__)
    parser.add_argument("stage", choices=("teacher", "codec", "voice"))
    parser.add_argument("--state", type=Path, required=True, help="folder of this training")
    parser.add_argument("--until", type=int, default=20000, help="step to stop at")
    arguments = parser.parse_args()
    state = stages.State(arguments.state)
    if arguments.stage == "teacher":
        stages.teacher(state)
    elif arguments.stage == "voice":
        stages.voice(state, arguments.until)
    else:
        stages.codec(state, arguments.until)


if __name__ == "__main__":
    main()
