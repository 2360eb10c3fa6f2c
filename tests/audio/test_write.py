"""Audio out: formats, sizes, streams, and no half-written file whatever happens."""

import io
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edge_runtime.audio.pcm import to_pcm16, wav_header
from edge_runtime.audio.wav import supported_extensions, write_wav
from edge_runtime.errors import CancelledError, OutputError

RATE = 48_000
EXTENSIONS = supported_extensions()
ENCODED = [name for name in EXTENSIONS if name not in (".raw", ".pcm")]


def tone(samples=RATE):
    return (np.sin(np.arange(samples) * 0.05) * 0.5).astype(np.float32)


def chunks(audio, size=7_680):
    return (audio[at : at + size] for at in range(0, len(audio), size))


class Pipe(io.BytesIO):
    """A standard output that remembers its flushes."""

    def __init__(self):
        super().__init__()
        self.flushed = []

    def flush(self):
        self.flushed.append(self.tell())


def test_a_wav_file_written_by_chunks_equals_one_written_whole(tmp_path):
    audio = tone()
    assert write_wav(tmp_path / "a.wav", audio, RATE) == RATE
    assert write_wav(str(tmp_path / "b.WAV"), chunks(audio), RATE) == RATE
    data = (tmp_path / "a.wav").read_bytes()
    assert data == (tmp_path / "b.WAV").read_bytes()
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    assert int.from_bytes(data[40:44], "little") == len(data) - 44 == 2 * RATE
    read, rate = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert rate == RATE
    np.testing.assert_array_equal(read, to_pcm16(audio))


def test_a_float_wav_keeps_every_sample(tmp_path):
    audio = tone() * 3
    write_wav(tmp_path / "a.wav", chunks(audio), RATE, subtype="FLOAT")
    info = soundfile.info(tmp_path / "a.wav")
    assert (info.frames, info.subtype, info.channels) == (RATE, "FLOAT", 1)
    np.testing.assert_array_equal(soundfile.read(tmp_path / "a.wav", dtype="float32")[0], audio)


def test_the_standard_library_reads_the_wav(tmp_path):
    import wave

    write_wav(tmp_path / "a.wav", tone(), RATE)
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getnframes(), file.getframerate(), file.getsampwidth()) == (RATE, RATE, 2)


@pytest.mark.parametrize("extension", ENCODED)
@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT"])
def test_every_supported_extension_is_written_in_its_own_format(tmp_path, extension, subtype):
    path = tmp_path / f"a{extension}"
    if (extension, subtype) == (".flac", "FLOAT"):
        with pytest.raises(OutputError, match="cannot hold FLOAT"):
            write_wav(path, tone(), RATE, subtype=subtype)
        assert os.listdir(tmp_path) == []
        return
    write_wav(path, chunks(tone(100_000)), RATE, subtype=subtype)
    info = soundfile.info(path)
    expected = {".wave": "WAV", ".opus": "OGG"}.get(extension, extension[1:].upper())
    assert (info.format, info.samplerate, info.frames) == (expected, RATE, 100_000)


def test_headerless_files_hold_samples_alone(tmp_path):
    audio = tone()
    write_wav(tmp_path / "a.raw", audio, RATE)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "a.raw", "<i2"), to_pcm16(audio))
    write_wav(tmp_path / "a.pcm", audio, RATE, subtype="FLOAT")
    np.testing.assert_array_equal(np.fromfile(tmp_path / "a.pcm", "<f4"), audio)


@pytest.mark.parametrize("name", ["a", "a.xyz", "a.wav.txt", ".wav", "a.aac"])
def test_an_unknown_extension_is_refused_with_the_known_ones(tmp_path, name):
    with pytest.raises(OutputError, match=r"\.wav.*\.flac"):
        write_wav(tmp_path / name, tone(), RATE)


def test_a_rate_that_a_format_does_not_take_is_refused_and_leaves_nothing(tmp_path):
    if ".opus" not in EXTENSIONS:
        pytest.skip("no Opus here")
    with pytest.raises(OutputError, match="44100 Hz"):
        write_wav(tmp_path / "a.opus", tone(), 44_100)
    assert os.listdir(tmp_path) == []
    for rate in (0, -1, 10**7):
        with pytest.raises(OutputError, match="Hz"):
            write_wav(tmp_path / "a.wav", tone(), rate)


@settings(deadline=None)
@given(
    arrays.arrays(
        np.float32,
        st.integers(1, 50),
        elements=st.floats(-(2.0**100), 2.0**100, width=32) | st.floats(-1.5, 1.5, width=32),
    )
)
def test_integers_are_rounded_and_clipped_never_wrapped(audio):
    integers = to_pcm16(audio)
    exact = np.clip(audio.astype(np.float64) * 32_768, -32_768, 32_767)
    assert integers.dtype == np.int16
    assert np.abs(integers - exact).max() <= 0.5


def test_sixteen_bit_samples_survive_a_round_trip():
    every = np.arange(-32_768, 32_768, dtype=np.int16)
    np.testing.assert_array_equal(to_pcm16(every.astype(np.float32) / 32_768), every)


def test_a_header_beyond_four_gigabytes_leaves_its_length_open():
    assert wav_header(RATE, "FLOAT", 2**30) == wav_header(RATE, "FLOAT")
    assert wav_header(RATE, "PCM_16", 2**30) != wav_header(RATE, "PCM_16")


@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT"])
def test_standard_output_gets_a_stream_that_readers_take(subtype):
    pipe = Pipe()
    audio = tone()
    assert write_wav("-", chunks(audio), RATE, subtype=subtype, stdout=pipe) == RATE
    read, rate = soundfile.read(io.BytesIO(pipe.getvalue()), dtype="float32")
    assert rate == RATE
    assert read.shape == audio.shape
    np.testing.assert_allclose(read, audio, atol=1e-4)


def test_every_chunk_is_flushed_before_the_next_is_asked_for():
    pipe = Pipe()

    def source():
        for index in range(3):
            assert len(pipe.flushed) == index
            yield tone(100)

    write_wav("-", source(), RATE, stdout=pipe)
    assert pipe.flushed == [44 + 200, 44 + 400, 44 + 600]


def test_an_unbuffered_output_that_takes_less_gets_the_rest():
    class Slow(Pipe):
        def write(self, data):
            return super().write(bytes(data[:7]))

    slow, fast = Slow(), Pipe()
    for pipe in (slow, fast):
        write_wav("-", tone(1_000), RATE, stdout=pipe)
    assert slow.getvalue() == fast.getvalue()


def test_audio_is_not_written_to_a_terminal():
    class Terminal(Pipe):
        def isatty(self):
            return True

    terminal = Terminal()
    with pytest.raises(OutputError, match="terminal"):
        write_wav("-", tone(), RATE, stdout=terminal)
    assert terminal.getvalue() == b""


def test_a_failure_before_the_first_chunk_leaves_the_pipe_empty():
    def source():
        raise CancelledError("Cancelled.")
        yield

    pipe = Pipe()
    with pytest.raises(CancelledError):
        write_wav("-", source(), RATE, stdout=pipe)
    assert pipe.getvalue() == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_an_output_error_without_noise_at_exit(unbuffered):
    program = (
        "import sys, numpy as np\n"
        "from edge_runtime.audio.wav import write_wav\n"
        "from edge_runtime.errors import OutputError\n"
        "try:\n"
        "    write_wav('-', (np.zeros(999, np.float32) for _ in range(5000)), 48000)\n"
        "except OutputError as error:\n"
        "    print(error, file=sys.stderr); sys.exit(error.exit_code)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout.read(44) == wav_header(RATE, "PCM_16")
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == OutputError.exit_code
    assert errors.splitlines() == ["The reader of standard output went away. Read it to its end."]


def test_a_missing_folder_and_a_folder_of_that_name_are_output_errors(tmp_path):
    with pytest.raises(OutputError, match="No such file"):
        write_wav(tmp_path / "absent" / "a.wav", tone(), RATE)
    (tmp_path / "b.wav").mkdir()
    with pytest.raises(OutputError, match="not a regular file"):
        write_wav(tmp_path / "b.wav", tone(), RATE)
    assert os.listdir(tmp_path) == ["b.wav"]


def test_a_named_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "a.wav")
    with pytest.raises(OutputError, match="not a regular file"):
        write_wav(tmp_path / "a.wav", tone(), RATE)
    assert (tmp_path / "a.wav").is_fifo()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_folder_is_an_output_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="Permission"):
        write_wav(tmp_path / "a.wav", tone(), RATE)


def test_a_refusal_by_the_folder_comes_before_any_audio_is_made(tmp_path):
    asked = []

    def source():
        asked.append(True)
        yield tone()

    with pytest.raises(OutputError):
        write_wav(tmp_path / "absent" / "a.wav", source(), RATE)
    with pytest.raises(OutputError):
        write_wav(tmp_path / "a.unknown", source(), RATE)
    assert not asked


@pytest.fixture
def full_disk():
    """No file may grow beyond 20 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_a_full_disk_is_an_output_error_and_the_old_file_stays(
    tmp_path, extension, full_disk, capfd
):
    path = tmp_path / f"a{extension}"
    path.write_bytes(b"old")
    hiss = np.random.default_rng(0).standard_normal(40 * RATE).astype(np.float32) * 0.3
    asked = []
    source = (asked.append(True) or chunk for chunk in chunks(hiss))
    with pytest.raises(OutputError, match="written"):
        write_wav(path, source, RATE)
    assert len(asked) < 125  # of 250: no more audio is made for a file that is lost
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("extension", [".wav", ".flac"])
@pytest.mark.parametrize(
    "error", [CancelledError("Cancelled."), OSError(5, "theirs"), KeyError("x")]
)
def test_an_error_of_the_source_passes_unchanged_and_leaves_no_file(tmp_path, extension, error):
    def source():
        yield tone()
        raise error

    with pytest.raises(type(error)) as caught:
        write_wav(tmp_path / f"a{extension}", source(), RATE)
    assert caught.value is error
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "audio",
    [
        np.zeros(0, np.float32),
        [],
        [np.zeros(0, np.float32)],
        np.zeros((4, 2), np.float32),
        np.zeros(4, np.int16),
        np.array([0.0, np.nan], np.float32),
        [tone(10), np.array([np.inf], np.float32)],
    ],
)
@pytest.mark.parametrize("extension", [".wav", ".flac"])
def test_what_is_no_audio_is_refused_and_leaves_no_file(tmp_path, audio, extension):
    with pytest.raises(OutputError):
        write_wav(tmp_path / f"a{extension}", audio, RATE)
    assert os.listdir(tmp_path) == []


def test_an_unknown_sample_type_is_refused(tmp_path):
    with pytest.raises(OutputError, match="PCM_24"):
        write_wav(tmp_path / "a.wav", tone(), RATE, subtype="PCM_24")
