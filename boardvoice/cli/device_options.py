"""Options that every command has which loads a bundle."""

from __future__ import annotations

import argparse
from typing import Any

from boardvoice.cli.progress import prepare_bar
from edge_runtime.loader import parse_size
from edge_runtime.voice import Voice


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add profile, threads, limits and preparation."""
    device = parser.add_argument_group("device")
    device.add_argument("--profile", metavar="NAME", help="device profile, a name or a .yaml file")
    device.add_argument(
        "--flow", choices=("cpu", "rknn", "rknn-sim"),
        help="where the flow estimator runs; as the profile says. rknn-sim is the NPU's simulator, "
        "slow, on a PC",
    )  # fmt: skip
    device.add_argument("--threads", type=int, help="threads; the profile's unless given")
    device.add_argument(
        "--tuned", action=argparse.BooleanOptionalAction, default=True,
        help="run as 'tune' found to be best here (on)",
    )  # fmt: skip
    device.add_argument(
        "--memory-limit", type=size_argument, metavar="SIZE",
        help="most anonymous memory, such as 800M; also BOARDVOICE_MEMORY_LIMIT",
    )  # fmt: skip
    device.add_argument(
        "--memory-soft", type=size_argument, metavar="SIZE",
        help="above this, give back what is not needed; also BOARDVOICE_MEMORY_SOFT",
    )  # fmt: skip
    device.add_argument(
        "--prepare", action=argparse.BooleanOptionalAction, default=None,
        help="prepare the bundle for this device at its first load (as the profile says)",
    )  # fmt: skip
    device.add_argument(
        "--verify", action=argparse.BooleanOptionalAction, default=True,
        help="check the SHA-256 of the bundle files that are read (on)",
    )  # fmt: skip


def load_voice(bundle: str, arguments: argparse.Namespace, *, shown: bool) -> Voice:
    """Load a bundle as the options say, with a bar while it is prepared."""
    with prepare_bar(shown=shown) as progress:
        return Voice.load(bundle, **voice_options(arguments), on_prepare=progress)


def voice_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as `Voice.load` takes them."""
    prepare = {True: "auto", False: "never", None: None}[arguments.prepare]
    return {
        "profile": arguments.profile,
        "threads": arguments.threads,
        "verify": arguments.verify,
        "prepare": prepare,
        "memory_limit": arguments.memory_limit,
        "memory_soft": arguments.memory_soft,
        "tuned": arguments.tuned,
        "flow": arguments.flow,
    }


def size_argument(text: str) -> int:
    """An option's size in bytes, such as ``800M``."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
