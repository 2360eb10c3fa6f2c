"""`boardvoice rknn`: rknn-toolkit2 on this PC, which makes models for Rockchip's NPU."""

from __future__ import annotations

import argparse
from typing import Any

from boardvoice.cli.console import complain, print_json
from edge_runtime.rknn_toolkit.conversions import ConversionCache
from edge_runtime.rknn_toolkit.environment import ToolkitEnvironment
from edge_runtime.rknn_toolkit.install import install_toolkit
from edge_runtime.rknn_toolkit.toolkit_error import ToolkitError
from edge_runtime.rknn_toolkit.worker import ToolkitWorker

_ASK_LIMIT_S = 300.0


def add_parser(commands: Any) -> None:
    """Add the subcommand and its own."""
    parser = commands.add_parser(
        "rknn",
        help="rknn-toolkit2 on this PC, for models on Rockchip's NPU",
        description="rknn-toolkit2 converts the flow estimator for Rockchip's NPU and simulates "
        "it. It lives in an environment of its own in the state folder (BOARDVOICE_STATE); "
        "BOARDVOICE_RKNN_PYTHON names another. A board does not need it.",
    )
    kinds = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)
    install = kinds.add_parser(
        "install", help="make its environment",
        description="Make an environment with rknn-toolkit2 and PyTorch: 1.5 GB with a CPU build "
        "of PyTorch, several more with the one that PyPI has for x86.",
    )  # fmt: skip
    install.add_argument(
        "--python", metavar="PROGRAM", help="Python 3.9 to 3.12 to make it with; found on PATH"
    )
    install.add_argument(
        "--torch-index", metavar="URL",
        help="package index to take PyTorch from, such as PyTorch's own with CPU builds",
    )  # fmt: skip
    install.add_argument("--force", action="store_true", help="make it anew")
    install.set_defaults(run=_install)
    status = kinds.add_parser("status", help="what is installed, and what was converted here")
    status.set_defaults(run=_status)
    for each in (install, status):
        each.add_argument("--json", action="store_true", help="print the outcome as JSON")
        each.add_argument("-q", "--quiet", action="store_true", help="say nothing")


def _install(arguments: argparse.Namespace) -> int:
    shown = not (arguments.quiet or arguments.json)
    versions = install_toolkit(
        python=arguments.python, torch_index=arguments.torch_index, force=arguments.force,
        on_step=(lambda step: complain(f"{step} …")) if shown else None,
    )  # fmt: skip
    if arguments.json:
        print_json({"python": str(ToolkitEnvironment.find().python), "versions": versions})
    elif shown:
        complain(_in_words(versions))
    return 0


def _status(arguments: argparse.Namespace) -> int:
    cache = ConversionCache.default()
    kept = []
    for folder in cache.entries():
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        kept.append({"folder": str(folder), "bytes": size})
    environment = ToolkitEnvironment.find()
    try:
        log = cache.folder / "status.log"
        cache.folder.mkdir(parents=True, exist_ok=True)
        with ToolkitWorker(environment.python, log) as worker:
            versions = worker.ask("check", _ASK_LIMIT_S)
    except OSError as error:
        raise ToolkitError(
            f"{cache.folder} cannot be written: {error.strerror or error}.", reason="files",
            remedy="Set BOARDVOICE_STATE to a folder that can be written.",
        ) from error  # fmt: skip
    if arguments.json:
        python = str(environment.python)
        print_json({"python": python, "versions": versions, "conversions": kept})
    elif not arguments.quiet:
        complain(f"{environment.python}: {_in_words(versions)}")
        size = sum(entry["bytes"] for entry in kept if isinstance(entry["bytes"], int))
        complain(f"{cache.folder}: {len(kept)} conversions, {size / 1e6:.1f} MB")
    return 0


def _in_words(versions: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
