"""The process that runs rknn-toolkit2: requests to it, steps and results from it, its end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from edge_runtime.rknn_toolkit.toolkit_error import ToolkitError

# Told the name of a step when it begins: load, build, export, start.
OnStep = Callable[[str], None]
_SCRIPT = Path(__file__).with_name("worker_script.py")
_MOST_TOLD = 300
_READER_S = 5
_NOT_FOR_OTHERS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


class ToolkitWorker:
    """One process. Not for several threads at once.

    Args:
        python: The toolkit environment's interpreter.
        log: File that takes all that the toolkit prints; truncated.

    Raises:
        ToolkitError: It cannot be started.
    """

    def __init__(self, python: Path, log: Path) -> None:
        self.log = log
        # The toolkit leaves intermediate models of 100 MB and more in its working directory.
        self._folder = Path(tempfile.mkdtemp(prefix="boardvoice-rknn-"))
        try:
            with log.open("wb") as sink:
                self._process = subprocess.Popen(
                    [str(python), "-u", str(_SCRIPT)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink,
                    cwd=self._folder, env=clean_environment(), start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ToolkitError(
                f"rknn-toolkit2 cannot be started with {python}: {error.strerror or error}.",
                reason="missing", remedy="Run 'boardvoice rknn install --force'.",
            ) from error  # fmt: skip
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        assert self._process.stdout is not None
        reader = threading.Thread(
            target=_collect, args=(self._process.stdout, self._answers), daemon=True
        )
        reader.start()
        # Whoever forgets to close it, or is ended, leaves no process with gigabytes behind.
        self._end = weakref.finalize(self, _end, self._process, reader, self._folder)

    def ask(
        self,
        what: str,
        limit_s: float,
        on_step: OnStep | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send one request and wait for its result.

        Args:
            what: ``versions``, ``check``, ``convert``, ``simulate`` or ``run``.
            limit_s: Longest that it may take. Beyond that the process is killed.
            on_step: Told of each step.
            arguments: Of the request.

        Raises:
            ToolkitError: The toolkit refused, took too long or died.
        """
        if not self._end.alive:
            raise ToolkitError("rknn-toolkit2 is not running any more.", reason="died")
        line = json.dumps({"do": what, **(arguments or {})}) + "\n"
        assert self._process.stdin is not None
        # A process that has died says so below, with its code.
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        deadline = time.monotonic() + limit_s
        while True:
            try:
                answer = self._answers.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                self.close()
                raise ToolkitError(
                    f"rknn-toolkit2 did not finish '{what}' within {limit_s:.0f} s.",
                    reason="timeout", remedy=f"Its log is {self.log}.",
                ) from None  # fmt: skip
            if answer is None:
                raise self._died(what)
            if "step" in answer:
                if on_step is not None:
                    on_step(str(answer["step"]))
            elif "done" in answer:
                done: dict[str, Any] = answer["done"]
                return done
            else:
                raise ToolkitError(
                    f"rknn-toolkit2 refused '{what}': {_in_short(answer)}", reason="refused",
                    remedy=f"Its log is {self.log}.",
                )  # fmt: skip

    def close(self) -> None:
        """End the process and all that it started; later calls do nothing."""
        self._end()

    def __enter__(self) -> ToolkitWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _died(self, what: str) -> ToolkitError:
        code = self._process.wait()
        self.close()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        killed = " Was memory short? It takes about seven times the model." if code == -9 else ""
        return ToolkitError(
            f"rknn-toolkit2 died in '{what}' ({how}).{killed}", reason="died",
            remedy=f"Its log is {self.log}.",
        )  # fmt: skip


def _end(process: subprocess.Popen[bytes], reader: threading.Thread, folder: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    # Its stream ends with the process.
    reader.join(_READER_S)
    shutil.rmtree(folder, ignore_errors=True)


def clean_environment() -> dict[str, str]:
    """This process's variables, less what would lead another Python astray."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_OTHERS}
    return {**kept, "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _collect(stream: IO[bytes], answers: queue.Queue[dict[str, Any] | None]) -> None:
    with contextlib.suppress(OSError), stream:
        for line in stream:
            try:
                answer = json.loads(line)
            except ValueError:
                # Not ours: a print that went past the redirection.
                continue
            if isinstance(answer, dict):
                answers.put(answer)
    answers.put(None)


def _in_short(answer: dict[str, Any]) -> str:
    """What it says, without the traceback that the toolkit puts into its messages."""
    text = str(answer.get("error", "")).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    said = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
    said = said[:_MOST_TOLD]
    return said if said.endswith(".") else f"{said}."
