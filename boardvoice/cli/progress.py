"""Progress bars on standard error, for people only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from edge_runtime.prepare.prepared_bundle import OnPrepare
from edge_runtime.speech import Progress as SpeechProgress
from export.progress import OnProgress


@contextlib.contextmanager
def export_bar(*, shown: bool) -> Iterator[OnProgress | None]:
    """A bar over the checkpoint's values that names the file being written."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield None
        return
    with _bar(console, TimeRemainingColumn()) as bar:
        task = bar.add_task("reading the checkpoint", total=None)

        def update(file: str, done: int, total: int) -> None:
            bar.update(task, description=file, completed=done, total=total)

        yield update


@contextlib.contextmanager
def speech_bar(*, shown: bool) -> Iterator[Callable[[SpeechProgress], None] | None]:
    """A bar over the chunks of the text, with the patches of the one being spoken."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield None
        return
    with _bar(console, TimeElapsedColumn()) as bar:
        task = bar.add_task("reading the text", total=None)

        def update(progress: SpeechProgress) -> None:
            bar.update(
                task,
                description=f"chunk {progress.chunk + 1} of {progress.chunks}, "
                f"patch {progress.patches}",
                completed=progress.chunk + progress.share,
                total=progress.chunks,
            )

        yield update


@contextlib.contextmanager
def prepare_bar(*, shown: bool) -> Iterator[OnPrepare | None]:
    """A bar over the graphs of a bundle while they are prepared."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield None
        return
    with _bar(console, TimeElapsedColumn()) as bar:
        task = bar.add_task("loading", total=None)

        def update(graph: str, done: int, total: int) -> None:
            bar.update(task, description=f"prepared {graph}", completed=done, total=total)

        yield update


def _bar(console: Console, last: TimeRemainingColumn | TimeElapsedColumn) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        last,
        console=console,
        transient=True,
    )
