"""A run that waits for another one's end: it can be cancelled, and it outlives a dead owner."""

from __future__ import annotations

import threading

from edge_runtime.cancel import CancelToken
from edge_runtime.errors import CancelledError
from edge_runtime.voice import Voice


def test_a_waiting_run_can_be_cancelled(f32_voice: Voice) -> None:
    stream = f32_voice.stream("Hello there.", seed=1)
    next(stream)
    token = CancelToken()
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            f32_voice.say("Hello.", seed=1, cancel=token)
        except CancelledError as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    token.cancel()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert len(outcome) == 1
    stream.close()


def test_a_stream_whose_thread_ended_gives_up_its_turn(f32_voice: Voice) -> None:
    streams = []

    def start() -> None:
        stream = f32_voice.stream("Hello there.", seed=1)
        next(stream)
        streams.append(stream)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    speech = f32_voice.say("Hello.", seed=1, max_len=2)
    assert len(speech.audio)
    assert list(streams[0]) == []
    assert len(f32_voice.say("Hello.", seed=1, max_len=2).audio)
