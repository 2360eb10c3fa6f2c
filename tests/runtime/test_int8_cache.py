"""int8 only where the back end can, said when it cannot, and clipping that is counted."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from kv_types import kv_profile, needs_int8
from make_int8_probe import make_probe
from watched_backend import WatchedBackend, never

from edge_runtime.backends import int8_cache
from edge_runtime.backends.int8_cache import PROBE, supported_kv, why_no_int8_cache
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.protocol import Array
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BackendError, BundleError
from edge_runtime.kv_cache import KVCache, KVShape
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2 import model as model_module

ORT = OrtBackend(threads=1, spinning=False)


class WithoutInt8:
    """ONNX Runtime as it was before: the probe does not load."""

    def load(self, path: Path) -> object:
        if path == PROBE:
            raise BackendError("no such attribute")
        return ORT.load(path)


class Wrong:
    """A back end that runs the probe and then changes an array of it."""

    def __init__(self, port: str, index: tuple[int, ...], value: float) -> None:
        self.port, self.index, self.value = port, index, value

    def load(self, path: Path) -> Wrong:
        return self

    def bind(self, *, fixed: bool = False) -> Wrong:
        self.arrays: dict[str, Array] = {}
        return self

    def input(self, name: str, array: Array) -> None:
        self.arrays[name] = array

    output = input

    def run(self, *, give_back: bool = False) -> None:
        rows = int8_cache.probe_rows()
        stop = int(self.arrays["total_rows"])
        keys, values, heads = int8_cache._attention(rows)
        self.arrays["past_key_0"][0, 0, :stop] = keys[:stop]
        self.arrays["past_value_0"][0, 0, :stop] = values[:stop]
        count = self.arrays["heads"].shape[1]
        self.arrays["heads"][0] = heads[stop - count : stop]
        if stop == len(rows) and self.port:
            self.arrays[self.port][self.index] = self.value


def test_the_probe_is_what_the_exporter_writes() -> None:
    assert onnx.load(PROBE) == make_probe()
    onnx.checker.check_model(make_probe())


def test_a_back_end_that_knows_the_answer_can() -> None:
    assert why_no_int8_cache(Wrong("", (), 0)) == ""


@pytest.mark.parametrize(
    ("port", "index", "value", "says"),
    [
        ("past_key_0", (0, 0, 0, 3), 99, "quantizes"),
        ("past_value_0", (0, 0, 4, 0), 99, "quantizes"),
        ("past_key_0", (0, 0, 5, 0), 0, "beyond the valid rows"),
        ("heads", (0, 0, 5), 0.5, "wrong results"),
        ("heads", (0, 0, 5), np.nan, "wrong results"),
    ],
)
def test_a_back_end_with_a_wrong_answer_cannot(
    port: str, index: tuple[int, ...], value: float, says: str
) -> None:
    assert says in why_no_int8_cache(Wrong(port, index, value))


def test_other_types_are_not_probed() -> None:
    for dtype in ("f32", "f16"):
        assert supported_kv(kv_profile(dtype), None) == (kv_profile(dtype), "")


def test_without_int8_speech_is_that_of_f16_and_the_result_says_why(
    f32_bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = Voice.load(f32_bundle, profile=kv_profile("f16"), backend=ORT)
    with caplog.at_level(logging.WARNING, "boardvoice"):
        voice = Voice.load(f32_bundle, profile=kv_profile("int8"), backend=WithoutInt8())
    (reason,) = (record.getMessage() for record in caplog.records)
    assert "in f16, not int8" in reason
    assert "1.32" in reason
    assert voice.profile.kv.dtype == "f16"
    assert voice.kv_row_bytes() == expected.kv_row_bytes()
    said = voice.say("hello", seed=1, max_len=3)
    assert reason in said.metrics.warnings
    assert np.array_equal(said.audio, expected.say("hello", seed=1, max_len=3).audio)


@needs_int8
def test_where_int8_can_be_nothing_is_said_of_it(make_bundle) -> None:
    bundle = make_bundle("tiny", "f32", kv="int8")
    said = Voice.load(bundle, profile=kv_profile("int8")).say("hello", seed=1, max_len=3)
    assert not any("KV cache" in warning for warning in said.metrics.warnings)


@needs_int8
def test_a_bundle_without_measured_ranges_is_refused_with_the_option_that_adds_them(
    f32_bundle: Path,
) -> None:
    with pytest.raises(BundleError, match=r"int8.*--int8-kv"):
        Voice.load(f32_bundle, profile=kv_profile("int8"))


def test_prepared_files_of_each_type_are_apart(f32_bundle: Path) -> None:
    bundle = Bundle.open(f32_bundle)
    names = {
        PreparationKey.of(bundle, kv_dtype=dtype).folder_name for dtype in ("f32", "f16", "int8")
    }
    assert len(names) == 3


def test_the_clipped_share_is_of_the_valid_rows_and_of_int8_alone() -> None:
    cache = KVCache(KVShape(2, 1, 16, max_rows=64, bucket_rows=16, dtype="int8"), 16)
    for buffer in cache.buffers:
        buffer.fill(126)
        buffer[:, :, 4:] = 127
    assert cache.clipped_share() == 0
    cache.rows = 4
    assert cache.clipped_share() == 0
    cache.buffers[0][0, 0, 0, :2] = (-128, 127)
    cache.buffers[3][0, 0, 3, 0] = -127
    assert cache.clipped_share() == 3 / (4 * 4 * 16)
    wide = KVCache(KVShape(2, 1, 16, max_rows=64, bucket_rows=16), 16)
    wide.rows = 4
    for buffer in wide.buffers:
        buffer.fill(127)
    assert wide.clipped_share() == 0


@needs_int8
@pytest.mark.parametrize(("most", "told"), [(0.0, 1), (1.0, 0)])
def test_much_clipping_is_told_once(
    make_bundle, monkeypatch: pytest.MonkeyPatch, most: float, told: int
) -> None:
    monkeypatch.setattr(KVCache, "clipped_share", lambda self: 0.25)
    monkeypatch.setattr(model_module, "_MOST_CLIPPED", most)
    bundle = make_bundle("tiny", "f32", kv="int8")
    voice = Voice.load(bundle, backend=WatchedBackend(never), profile=kv_profile("int8"))
    metrics = voice.say("One two. " * 40, seed=1, max_len=2, steps=2, chunk_rows=150).metrics
    assert len(metrics.chunks) > 1
    assert metrics.as_dict()["kv_clipped"] == 0.25
    assert sum("ran past the range" in warning for warning in metrics.warnings) == told
