"""Reference audio in: equal to librosa's loading, and a typed refusal of everything else."""

import io
import os
import struct
import warnings

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.audio.load import load_audio
from edge_runtime.audio.pcm import wav_header
from edge_runtime.errors import AudioError

RATE = 16_000


def noise(frames, channels=1, seed=0):
    samples = np.random.default_rng(seed).standard_normal((frames, channels)) * 0.1
    return samples.astype(np.float32)


def encoded(samples, rate, form="WAV", subtype=None):
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=form, subtype=subtype)
    return stream.getvalue()


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000])
@pytest.mark.parametrize("channels", [1, 2, 12])
def test_wav_loads_exactly_as_librosa_loads_it(rate, channels):
    librosa = pytest.importorskip("librosa")
    data = encoded(noise(rate + 7, channels), rate)
    expected, _ = librosa.load(io.BytesIO(data), sr=RATE, mono=True)
    loaded = load_audio(data, RATE)
    assert loaded.dtype == np.float32
    assert loaded.flags.c_contiguous
    assert loaded.shape == expected.shape
    np.testing.assert_allclose(loaded, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("form", "subtype"),
    [
        ("WAV", "PCM_U8"),
        ("WAV", "PCM_24"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
        ("AIFF", "PCM_16"),
    ],
)
def test_other_formats_load_as_librosa_loads_them(form, subtype):
    librosa = pytest.importorskip("librosa")
    if not soundfile.check_format(form, subtype):
        pytest.skip(f"no {form} {subtype} here")
    data = encoded(noise(100_000, 2), 44_100, form, subtype)
    expected, _ = librosa.load(io.BytesIO(data), sr=RATE, mono=True)
    np.testing.assert_allclose(load_audio(data, RATE), expected, rtol=0, atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.integers(1_000, 60_000), st.integers(3_000, 20_000))
def test_the_length_is_the_ceiling_of_the_exact_one_as_librosa_has_it(rate, frames):
    frames = max(frames, rate // 20 + 1)
    loaded = load_audio((noise(frames)[:, 0], rate), RATE)
    assert len(loaded) == int(np.ceil(frames * (float(RATE) / rate)))


def test_paths_bytes_files_and_pipes_give_the_same(tmp_path):
    data = encoded(noise(20_000, 2), 22_050)
    path = tmp_path / "référence 你.wav"
    path.write_bytes(data)
    expected = load_audio(path, RATE)
    with open(path, "rb") as stream:
        results = [load_audio(str(path), RATE), load_audio(data, RATE), load_audio(stream, RATE)]
    for result in results:
        np.testing.assert_array_equal(result, expected)
    small = encoded(noise(10_000, 2), 22_050)
    reader, writer = os.pipe()
    with open(writer, "wb") as sending:
        sending.write(small)
    with open(reader, "rb") as receiving:
        piped = load_audio(receiving, RATE)
    np.testing.assert_array_equal(piped, load_audio(small, RATE))


@pytest.mark.parametrize("kept", [100, 30_000, 79_000])
def test_a_wav_that_ends_before_its_header_says_is_refused(tmp_path, kept):
    path = tmp_path / "torn.wav"
    path.write_bytes(encoded(noise(20_000, 2), 22_050)[:kept])
    with pytest.raises(AudioError, match=r"torn\.wav is torn"):
        load_audio(path, RATE)


def test_a_wav_whose_header_leaves_the_length_open_is_read(tmp_path):
    data = bytearray(encoded(noise(20_000), 22_050))
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    assert len(load_audio(bytes(data), RATE)) > 0


def test_arrays_of_floats_and_integers_are_scaled_and_averaged():
    samples = noise(4_000, 2)
    expected = samples.mean(axis=1)
    np.testing.assert_array_equal(load_audio((samples, RATE), RATE), expected)
    np.testing.assert_allclose(
        load_audio((samples.astype(np.float64), RATE), RATE), expected, atol=1e-7
    )
    np.testing.assert_allclose(
        load_audio((np.rint(samples * 2**15).astype(np.int16), RATE), RATE), expected, atol=1e-4
    )
    np.testing.assert_allclose(
        load_audio((np.rint(samples * 2**31).astype(np.int32), RATE), RATE), expected, atol=1e-6
    )
    np.testing.assert_allclose(
        load_audio((np.rint(samples * 128 + 128).astype(np.uint8), RATE), RATE), expected, atol=1e-2
    )


def test_the_result_does_not_share_memory_with_the_array_given():
    samples = noise(4_000)[:, 0]
    loaded = load_audio((samples, RATE), RATE)
    assert not np.shares_memory(loaded, samples)


@pytest.mark.parametrize(
    ("array", "rate", "message"),
    [
        (np.zeros(0, np.float32), RATE, "no samples"),
        (np.zeros(8_000, np.float32), RATE, "silent"),
        (np.stack([noise(8_000)[:, 0], -noise(8_000)[:, 0]], axis=1), RATE, "silent"),
        (noise(799)[:, 0], RATE, "50 ms is the least"),
        (np.full(8_000, np.nan, np.float32), RATE, "NaN or infinite sample at 0.000 s"),
        (np.r_[noise(4_000)[:, 0], np.inf, noise(4_000)[:, 0]], RATE, "at 0.250 s"),
        (np.full(8_000, 1e300), RATE, "infinite"),
        (noise(8_000)[:, 0] * 32_768, RATE, "full scale is 1"),
        (noise(8_000)[:, 0], 0, "rate of 0 Hz"),
        (noise(8_000)[:, 0], -16_000, "rate of -16000 Hz"),
        (noise(8_000)[:, 0], 10_000_000, "rate of 10000000 Hz"),
        (noise(8_000)[:, 0], 16_000.5, "whole number"),
        (noise(8_000)[:, 0], True, "whole number"),
        (noise(8_000, 2).T, RATE, "[Tt]ranspose"),
        (noise(8_000, 65), RATE, "65 channels"),
        (np.zeros((4, 4, 4)), RATE, "shape"),
        (np.array(["a"] * 9000), RATE, "type"),
        (np.ones(8_000, np.int8), RATE, "int8"),
        (np.ones(8_000, bool), RATE, "bool"),
    ],
)
def test_arrays_that_are_no_audio_are_refused(array, rate, message):
    with pytest.raises(AudioError, match=message):
        load_audio((array, rate), RATE)


def test_fifty_milliseconds_is_enough():
    assert len(load_audio((noise(800)[:, 0], RATE), RATE)) == 800


@pytest.mark.parametrize("source", [None, 3, [0.1, 0.2], (noise(9)[:, 0],), io.StringIO("RIFF")])
def test_other_sources_are_refused(source):
    with pytest.raises(AudioError):
        load_audio(source, RATE)


def test_paths_that_are_no_audio_file_are_refused(tmp_path):
    with pytest.raises(AudioError, match=r"no audio file .*absent\.wav"):
        load_audio(tmp_path / "absent.wav", RATE)
    with pytest.raises(AudioError, match="folder"):
        load_audio(tmp_path, RATE)
    with pytest.raises(AudioError, match="device or pipe"):
        load_audio(os.devnull, RATE)
    with pytest.raises(AudioError):
        load_audio("a\0b.wav", RATE)
    for name, data in {
        "text.wav": b"This is no audio at all, whatever its name says." * 9,
        "empty.wav": b"",
        "cut.wav": encoded(noise(8_000), RATE)[:30],
        "headerless.raw": b"\0" * 9_000,
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(AudioError, match=name):
            load_audio(tmp_path / name, RATE)


def test_a_torn_compressed_file_is_refused(tmp_path):
    data = encoded(noise(60_000), RATE, "FLAC")
    path = tmp_path / "torn.flac"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(AudioError, match=r"torn\.flac"):
        load_audio(path, RATE)


def test_a_wav_header_without_samples_is_refused():
    with pytest.raises(AudioError, match="no samples"):
        load_audio(wav_header(RATE, "PCM_16", 0), RATE)


def test_nan_in_a_float_file_is_refused():
    samples = noise(8_000)[:, 0]
    samples[4_000] = np.nan
    with pytest.raises(AudioError, match="NaN"):
        load_audio(encoded(samples, RATE, subtype="FLOAT"), RATE)


def test_the_longest_audio_is_a_limit_that_names_both_lengths():
    samples = noise(2 * RATE + 1)[:, 0]
    assert len(load_audio((samples[:-1], RATE), RATE, max_seconds=2.0)) == 2 * RATE
    for source in ((samples, RATE), encoded(samples, RATE), encoded(samples, RATE, "FLAC")):
        with pytest.raises(AudioError, match=r"2\.0 s long; the limit is 2 s"):
            load_audio(source, RATE, max_seconds=2.0)
    with pytest.raises(AudioError, match="limit is 60 s"):
        load_audio((np.ones(61 * RATE, np.float32), RATE), RATE)


class Counting(io.BytesIO):
    """A file that counts the bytes read from it."""

    total = 0

    def readinto(self, buffer):
        count = super().readinto(buffer)
        self.total += count
        return count

    def read(self, size=-1):
        data = super().read(size)
        self.total += len(data)
        return data


def test_a_header_that_claims_gigabytes_costs_no_memory(tmp_path):
    body = np.rint(noise(RATE)[:, 0] * 20_000).astype("<i2").tobytes()
    expected = np.frombuffer(body, "<i2").astype(np.float32) / 32_768
    header = bytearray(wav_header(RATE, "PCM_16", 1))
    header[40:44] = struct.pack("<I", 0xF0000000)
    for data in (bytes(header) + body, wav_header(RATE, "PCM_16") + body):
        np.testing.assert_array_equal(load_audio(data, RATE), expected)


def test_a_long_open_ended_file_is_read_only_up_to_the_limit():
    body = np.zeros(8 << 20, np.int16).tobytes()
    stream = Counting(wav_header(RATE, "PCM_16") + body)
    with pytest.raises(AudioError, match="limit is 1 s"):
        load_audio(stream, RATE, max_seconds=1.0)
    assert stream.total < 1 << 20


def test_a_sparse_file_of_gigabytes_is_refused_by_its_length(tmp_path):
    path = tmp_path / "sparse.wav"
    with open(path, "wb") as stream:
        stream.write(wav_header(RATE, "PCM_16", 1_500_000_000))
        stream.truncate(3_000_000_044)
    with pytest.raises(AudioError, match="limit is 60 s"):
        load_audio(path, RATE)


@pytest.mark.parametrize(("rate", "channels"), [(10, 1), (4_000_000, 1), (16_000, 200)])
def test_absurd_headers_are_refused(rate, channels):
    header = bytearray(wav_header(RATE, "PCM_16", 40_000))
    struct.pack_into("<HIIH", header, 22, channels, rate, rate * 2 * channels, 2 * channels)
    with pytest.raises(AudioError):
        load_audio(bytes(header) + b"\1" * 80_000, RATE)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_load_or_raise_an_audio_error(data):
    form = data.draw(st.sampled_from(["WAV", "FLAC", "OGG", "AIFF"]))
    whole = bytearray(encoded(noise(4_000), RATE, form))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            loaded = load_audio(bytes(whole), RATE)
        except AudioError:
            return
    assert loaded.dtype == np.float32
    assert np.isfinite(loaded).all()
