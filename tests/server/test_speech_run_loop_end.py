"""A run whose event loop ends before it does."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import TracebackType

import numpy as np
import pytest

from boardvoice.server.audio_encoder import AudioEncoder
from boardvoice.server.speech_run import SpeechRun
from edge_runtime.cancel import CancelToken


class _Stream:
    """Speaks until it is cancelled."""

    def __init__(self, cancel: CancelToken, go_on: threading.Event) -> None:
        self._cancel, self._go_on = cancel, go_on

    def __enter__(self) -> _Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def __iter__(self):
        while not self._cancel.cancelled:
            yield np.zeros(7680, np.float32)
            self._go_on.wait(10)


@pytest.mark.parametrize("full", [True, False])
def test_a_run_whose_loop_has_ended_stops_without_a_word(
    caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    cancel, go_on = CancelToken(), threading.Event()
    if full:
        # It fills the queue and waits for room, which the loop's end must not leave it in.
        go_on.set()

    async def begin() -> None:
        run = SpeechRun(
            lambda: _Stream(cancel, go_on),  # type: ignore[arg-type,return-value]
            AudioEncoder("pcm", 48000, 48000, 1.0),
            cancel,
        )
        await anext(run.pieces())
        await asyncio.sleep(0.3 if full else 0)

    with caplog.at_level(logging.DEBUG, "boardvoice"):
        asyncio.run(begin())
        go_on.set()
        for thread in threading.enumerate():
            if thread.name == "boardvoice-run":
                thread.join(10)
                assert not thread.is_alive()
    assert cancel.cancelled
    assert not caplog.records
