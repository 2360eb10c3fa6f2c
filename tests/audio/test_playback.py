"""Playing: order, start, gaps, the end, and what a missing device says. With a fake device."""

import sys
import threading
import types

import numpy as np
import pytest

from edge_runtime.audio.playback import Player
from edge_runtime.errors import DependencyError, OutputError

RATE = 1_000


class FakeSound(types.ModuleType):
    """sounddevice as far as it is used; the test turns the device's crank with `pull`."""

    class PortAudioError(Exception):
        pass

    class CallbackStop(Exception):
        pass

    def __init__(self):
        super().__init__("sounddevice")
        self.streams = []
        self.open_error = None
        self.start_error = None
        sound = self

        class OutputStream:
            def __init__(self, **settings):
                if sound.open_error:
                    raise sound.open_error
                self.settings = settings
                self.active = self.closed = self.aborted = False
                self.played = []
                sound.streams.append(self)

            def start(self):
                if sound.start_error:
                    raise sound.start_error
                self.active = True

            def abort(self):
                self.aborted, self.active = True, False

            def close(self):
                self.closed, self.active = True, False

            def pull(self, frames):
                out = np.full((frames, 1), 9.0, np.float32)
                try:
                    self.settings["callback"](out, frames, None, None)
                except sound.CallbackStop:
                    self.active = False
                self.played.append(out[:, 0])
                if not self.active:
                    self.settings["finished_callback"]()

        self.OutputStream = OutputStream

    @property
    def stream(self):
        return self.streams[-1]


@pytest.fixture
def sound(monkeypatch):
    fake = FakeSound()
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    return fake


def ramp(start, stop):
    return np.arange(start, stop, dtype=np.float32) / 10_000


def run_device(stream, frames=64):
    """Pull until the device is told to stop, on its own thread."""

    def crank():
        while stream.active:
            stream.pull(frames)

    thread = threading.Thread(target=crank)
    thread.start()
    return thread


def test_chunks_are_played_in_order_without_loss(sound):
    with Player(RATE, prebuffer=0.1) as player:
        player.write(ramp(0, 130))
        player.write(ramp(130, 131))
        player.write(ramp(131, 700))
        thread = run_device(sound.stream)
    thread.join()
    played = np.concatenate(sound.stream.played)
    np.testing.assert_array_equal(played[:700], ramp(0, 700))
    assert not played[700:].any()
    assert sound.stream.closed
    assert sound.stream.settings["samplerate"] == RATE
    assert player.underruns == 0


def test_sound_starts_when_the_prebuffer_is_full_and_not_before(sound):
    player = Player(RATE, prebuffer=0.2)
    player.write(ramp(0, 199))
    assert not sound.stream.active
    player.write(ramp(199, 200))
    assert sound.stream.active
    player.abort()


def test_audio_shorter_than_the_prebuffer_is_played_at_the_end(sound):
    player = Player(RATE, prebuffer=5.0)
    player.write(ramp(0, 100))
    start = sound.stream.start

    def start_and_run():
        start()
        run_device(sound.stream)

    sound.stream.start = start_and_run
    player.close()
    np.testing.assert_array_equal(np.concatenate(sound.stream.played)[:100], ramp(0, 100))


def test_a_gap_is_silence_and_is_counted(sound):
    player = Player(RATE, prebuffer=0.1)
    player.write(ramp(1, 101))
    sound.stream.pull(150)
    sound.stream.pull(7)
    assert player.underruns == 0
    player.write(ramp(101, 201))
    sound.stream.pull(100)
    played = np.concatenate(sound.stream.played)
    assert not played[100:157].any()
    np.testing.assert_array_equal(played[157:], ramp(101, 201))
    assert player.underruns == 1
    player.abort()


def test_writing_waits_while_too_much_is_held(sound):
    player = Player(RATE, prebuffer=0.1, ahead=0.5)
    player.write(ramp(0, 600))
    written = threading.Event()

    def write():
        player.write(ramp(600, 700))
        written.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not written.wait(0.05)
    sound.stream.pull(200)
    thread.join()
    assert written.is_set()
    player.abort()


def test_a_device_that_stops_is_an_output_error_and_close_returns(sound):
    player = Player(RATE, prebuffer=0.1, ahead=0.5)
    player.write(ramp(0, 600))
    sound.stream.active = False
    with pytest.raises(OutputError, match="stopped"):
        player.write(ramp(600, 700))
    player.close()
    assert sound.stream.closed


def test_an_error_in_the_block_stops_the_sound_at_once(sound):
    def play():
        with Player(RATE, prebuffer=0.1) as player:
            player.write(ramp(0, 500))
            raise KeyError

    with pytest.raises(KeyError):
        play()
    assert sound.stream.aborted
    assert sound.stream.closed


def test_a_closed_player_takes_no_more_and_closes_twice(sound):
    player = Player(RATE)
    player.close()
    player.close()
    player.abort()
    assert sound.stream.closed
    assert not sound.stream.aborted
    with pytest.raises(OutputError, match="closed"):
        player.write(ramp(0, 10))


def test_samples_are_clipped_copied_and_checked(sound):
    player = Player(RATE, prebuffer=0.0)
    chunk = np.array([2.0, -3.0, 0.5], np.float32)
    player.write(chunk)
    chunk[:] = 0
    sound.stream.pull(3)
    np.testing.assert_array_equal(sound.stream.played[0], np.float32([1.0, -1.0, 0.5]))
    for bad in (np.zeros((2, 2)), np.array([np.nan])):
        with pytest.raises(OutputError, match="finite floats"):
            player.write(bad)
    player.abort()


def test_no_device_and_a_refused_start_are_output_errors(sound):
    sound.open_error = sound.PortAudioError("no default output device")
    with pytest.raises(OutputError, match="no default output device"):
        Player(RATE)
    sound.open_error = ValueError("No output device matching 'x'")
    with pytest.raises(OutputError, match="matching 'x'"):
        Player(RATE, device="x")
    sound.open_error = None
    sound.start_error = sound.PortAudioError("busy")
    player = Player(RATE, prebuffer=0.0)
    with pytest.raises(OutputError, match="busy"):
        player.write(ramp(0, 10))


def test_a_missing_package_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(DependencyError, match=r"pip install sounddevice"):
        Player(RATE)


def test_a_missing_portaudio_names_its_system_package(monkeypatch):
    def fail(name):
        raise OSError("PortAudio library not found")

    monkeypatch.setattr("edge_runtime.audio.playback.importlib.import_module", fail)
    with pytest.raises(DependencyError, match="libportaudio2"):
        Player(RATE)
