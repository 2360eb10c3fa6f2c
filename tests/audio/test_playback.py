"""Playing: order, start, gaps, the end, and what a missing device says. With a fake device."""

import sys
import threading
import types

import numpy as np
import pytest

from edge_runtime.audio.pace import Pace
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
        self.only_rate = None
        self.devices = [
            {"name": "Mic", "max_output_channels": 0, "default_samplerate": 500.0},
            {"name": "USB Speaker", "max_output_channels": 2, "default_samplerate": 500.0},
        ]
        sound = self

        class OutputStream:
            def __init__(self, **settings):
                if sound.open_error:
                    raise sound.open_error
                if sound.only_rate not in (None, settings["samplerate"]):
                    raise sound.PortAudioError("Invalid sample rate")
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

    def query_devices(self, device=None, kind=None):
        return self.devices if kind is None else self.devices[1]

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
    with pytest.raises(OutputError, match=r"matching 'x'.*Devices: 1 'USB Speaker'\."):
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


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def speak(sound, player, clock, patches, rtf, patch=0.16):
    """Write patches as a run with this real-time factor makes them, while the device plays.

    Returns the time when sound started and the audio that was there, in seconds.
    """
    started = there = None
    for number in range(1, patches + 1):
        clock.now += patch * rtf
        player.write(np.full(round(patch * RATE), 0.5, np.float32))
        if started is None and sound.stream.active:
            started, there = clock.now, number * patch
        if started is not None:
            due = round((clock.now - started) * RATE) - sum(map(len, sound.stream.played))
            if due:
                sound.stream.pull(due)
    return started, there


def test_slow_speech_is_gathered_until_the_rest_comes_in_time(sound, caplog):
    clock = Clock()
    seconds, rtf = 8.0, 1.5
    player = Player(RATE, prebuffer=0.2, pace=Pace(seconds, clock=clock))
    started, there = speak(sound, player, clock, 50, rtf)
    assert there >= seconds * (1 - 1 / rtf)
    assert started < seconds * rtf / 2
    assert player.underruns == 0
    assert np.concatenate(sound.stream.played).all()
    (note,) = player.notes
    assert "1.50 times slower" in note
    assert [record.getMessage() for record in caplog.records] == [note]
    player.abort()


def test_fast_speech_starts_at_the_plain_prebuffer_without_a_word(sound):
    clock = Clock()
    player = Player(RATE, prebuffer=0.5, pace=Pace(60.0, clock=clock))
    assert speak(sound, player, clock, 3, 0.5) == (None, None)
    assert speak(sound, player, clock, 1, 0.5)[0] is not None
    assert player.notes == []
    player.abort()


def test_a_lead_longer_than_what_may_be_held_does_not_stop_the_writer(sound):
    clock = Clock()
    player = Player(RATE, prebuffer=0.1, ahead=0.5, pace=Pace(8.0, clock=clock))
    _, there = speak(sound, player, clock, 50, 2.0)
    assert there > 4.0
    assert player.underruns == 0
    player.abort()


def test_pace_knows_nothing_before_it_measured_and_has_a_bound():
    clock = Clock()
    pace = Pace(10_000.0, clock=clock)
    assert pace.rtf is None
    clock.now = 100.0  # the time to the first piece says nothing about the others
    pace.note(0.5)
    assert pace.lead is None
    clock.now = 101.0
    pace.note(0.5)
    assert pace.rtf == pytest.approx(2.0)
    assert pace.lead == 60.0


def test_a_text_of_many_letters_is_expected_to_last_longer():
    def lead(text):
        clock = Clock()
        pace = Pace.of_text(text)
        pace._clock = clock
        pace.note(0.1)
        clock.now = 2.0
        pace.note(1.0)
        return pace.lead

    english = "Now serving number forty two. " * 10
    assert lead(english) == pytest.approx(len(english.strip()) / 12 * (1 - 1 / 2.2))
    assert lead("(a calm old man) " + english) == pytest.approx(lead(english), rel=0.01)
    assert lead("你好" * 50) == pytest.approx(100 / 4 * (1 - 1 / 2.2))


def test_volume_scales_before_clipping(sound):
    player = Player(RATE, prebuffer=0.0, volume=0.5)
    player.write(np.array([1.0, -1.6, 4.0], np.float32))
    sound.stream.pull(3)
    np.testing.assert_allclose(sound.stream.played[0], np.float32([0.5, -0.8, 1.0]))
    player.abort()


def test_abort_fades_out_what_is_sounding(sound):
    player = Player(RATE, prebuffer=0.0, fade=0.1)
    player.write(np.full(1_000, 0.5, np.float32))
    sound.stream.pull(50)
    abort = threading.Thread(target=player.abort)
    abort.start()
    while player._fade_left is None:
        abort.join(0.001)
    while sound.stream.active:
        sound.stream.pull(30)
    abort.join()
    played = np.concatenate(sound.stream.played)[50:]
    assert len(played) == 120
    assert (np.diff(played) <= 0).all()
    assert np.abs(np.diff(played)).max() <= 0.5 / 100 + 1e-6
    assert not played[100:].any()
    assert sound.stream.closed


def test_a_device_with_another_rate_gets_resampled_audio(sound, caplog):
    sound.only_rate = 500
    tone = np.sin(2 * np.pi * 20 * np.arange(3_000) / RATE).astype(np.float32) * 0.5
    player = Player(RATE, prebuffer=5.0)
    for start in range(0, 3_000, 160):
        player.write(tone[start : start + 160])
    begin = sound.stream.start

    def start_and_run():
        begin()
        run_device(sound.stream)

    # At the end, when what the resampler held back is there too.
    sound.stream.start = start_and_run
    player.close()
    played = np.concatenate(sound.stream.played)[:1_500]
    wanted = np.sin(2 * np.pi * 20 * np.arange(1_500) / 500) * 0.5
    np.testing.assert_allclose(played[100:-100], wanted[100:-100], atol=2e-3)
    assert sound.stream.settings["samplerate"] == 500
    assert "500 Hz, not 1000" in player.notes[0]
    assert len(caplog.records) == 1


def test_a_device_that_takes_no_rate_at_all_is_an_output_error(sound):
    sound.only_rate = 123
    with pytest.raises(OutputError, match="takes 1000 Hz mono: Invalid sample rate"):
        Player(RATE)
