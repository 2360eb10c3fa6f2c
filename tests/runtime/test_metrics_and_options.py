"""What a run reports, and options that are refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import AudioError, ProfileError, TextError, UsageError
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.memory.watch import MemoryWatch
from edge_runtime.speech import ChunkReport, SpeechMetrics, SpeechOptions
from edge_runtime.voice import Voice

NAMES = {
    "patches", "stop_reason", "prefix_rows", "kv_bytes", "ms", "first_audio_ms", "ms_per_patch",
    "cpu_s_per_patch", "rtf", "peak_rss_anon_bytes", "disk_read_bytes",
}  # fmt: skip
COMPONENTS = {"text", "encode", "prefill", "flow", "patch_encoder", "lm_step", "vae_decode"}


def chunk(patches: int, stop_reason: str) -> ChunkReport:
    return ChunkReport("a", 1, 3, patches, stop_reason, 1, 0)  # type: ignore[arg-type]


def metrics(*chunks: ChunkReport, planned: int | None = None) -> SpeechMetrics:
    found = SpeechMetrics(seed=0, sample_rate=48_000, patch_seconds=0.16)
    found.chunks.extend(chunks)
    found.planned_chunks = len(chunks) if planned is None else planned
    return found


def test_a_run_reports_every_figure_as_json(f32_voice: Voice) -> None:
    said = f32_voice.say("hello world", seed=np.int64(1), max_len=4)
    report = json.loads(json.dumps(said.metrics.as_dict(), allow_nan=False))
    assert set(report) >= NAMES
    assert set(report["ms"]) == COMPONENTS
    assert report["patches"] == 4
    assert report["stop_reason"] == said.stop_reason == "max_len"
    assert report["prefix_rows"] == report["chunks"][0]["tokens"] + 1
    assert report["audio_s"] == pytest.approx(4 * 0.16)
    assert len(said.audio) == 4 * 7680
    assert all(report[name] > 0 for name in NAMES - {"stop_reason", "ms", "disk_read_bytes"})


def test_components_do_not_take_longer_than_the_run(f32_voice: Voice) -> None:
    said = f32_voice.say("hello world", seed=1, max_len=6)
    assert sum(said.metrics.ms.values()) <= said.metrics.wall_s * 1000 + 1
    assert said.metrics.first_audio_ms <= said.metrics.wall_s * 1000


def test_an_unread_stream_reports_nothing_and_divides_by_nothing(f32_voice: Voice) -> None:
    report = f32_voice.stream("hello", seed=1).metrics.as_dict()
    assert (report["patches"], report["rtf"], report["stop_reason"]) == (0, None, "cancelled")
    json.dumps(report, allow_nan=False)


def test_synthetic_weights_are_announced(f32_voice: Voice) -> None:
    said = f32_voice.say("hello", seed=1, max_len=1)
    assert any("not speech" in warning for warning in said.metrics.warnings)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (metrics(chunk(3, "stop"), chunk(3, "stop")), "stop"),
        (metrics(chunk(3, "stop"), chunk(3, "cap"), chunk(1, "max_len")), "cap"),
        (metrics(chunk(3, "stop"), planned=2), "cancelled"),
        (metrics(chunk(3, "cap"), planned=2), "cancelled"),
        (metrics(), "cancelled"),
    ],
)
def test_the_stop_reason_is_stop_only_when_every_chunk_stopped(
    found: SpeechMetrics, reason: str
) -> None:
    assert found.stop_reason == reason


def test_progress_is_told_after_every_patch(f32_voice: Voice) -> None:
    told = []
    f32_voice.say("hello", seed=1, max_len=3, progress=told.append)
    assert [(item.chunk, item.chunks, item.patches) for item in told] == [
        (0, 1, 1), (0, 1, 2), (0, 1, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1), ("seed", 2**63), ("seed", 1.5), ("seed", "1"),
        ("steps", 1), ("steps", 101), ("steps", 2.5),
        ("cfg", 0.0), ("cfg", 10.1), ("cfg", math.nan), ("cfg", math.inf), ("cfg", "2"),
        ("min_len", -1), ("min_len", 1.5), ("max_len", 0), ("max_len", math.inf),
        ("retry_times", 0), ("retry_times", 21), ("retry_ratio", 0.0),
        ("retry_ratio", -math.inf), ("retry_ratio", math.nan), ("retry_ratio", None),
        ("chunk_rows", 15), ("chunk_rows", "64"),
    ],
)  # fmt: skip
def test_an_option_out_of_range_is_named(f32_voice: Voice, name: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"^{name} is .*It must be"):
        f32_voice.say("hello", **{name: value})


@given(
    steps=st.integers(2, 100), cfg=st.floats(0.1, 10), seed=st.integers(0, 2**63 - 1),
    rows=st.none() | st.integers(16),
)  # fmt: skip
def test_options_within_range_are_taken(
    steps: int, cfg: float, seed: int, rows: int | None
) -> None:
    options = SpeechOptions(steps=np.int32(steps), cfg=cfg, seed=seed, chunk_rows=rows)
    assert options.steps == steps


def test_an_unknown_option_is_named_with_those_there_are(f32_voice: Voice) -> None:
    with pytest.raises(UsageError, match=r"Unknown option stepz.*steps, cfg"):
        f32_voice.say("hello", stepz=3)


def test_single_options_override_the_given_ones(f32_voice: Voice) -> None:
    options = SpeechOptions(seed=3, max_len=2)
    said = f32_voice.say("hello", options=options, max_len=1)
    assert (said.metrics.seed, said.metrics.patches) == (3, 1)


@pytest.mark.parametrize("given_", [{"prompt_text": "a"}, {"prompt_audio": b"x"}])
def test_prompt_audio_and_text_go_together(f32_voice: Voice, given_: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="go together"):
        f32_voice.say("hello", **given_)


def test_bad_text_and_audio_are_refused_and_free_the_voice(
    f32_voice: Voice, tmp_path: Path
) -> None:
    with pytest.raises(TextError):
        f32_voice.say(" ")
    with pytest.raises(AudioError, match="no audio file"):
        f32_voice.say("hello", reference=tmp_path / "none.wav")
    with pytest.raises(AudioError, match="silent"):
        f32_voice.say("hello", reference=(np.zeros(16_000, np.float32), 16_000))
    assert f32_voice.say("hello", seed=1, max_len=1).metrics.patches == 1


@pytest.mark.parametrize("trim", [False, True])
@pytest.mark.parametrize("seconds", [0.05, 0.16, 0.161, 1.0])
def test_references_of_any_length_are_padded_to_whole_patches(
    f32_voice: Voice, seconds: float, trim: bool
) -> None:
    audio = np.random.default_rng(0).uniform(-0.5, 0.5, round(seconds * 16_000)), 16_000
    said = f32_voice.say("hi", reference=audio, trim_silence=trim, seed=1, max_len=1)
    tokens = said.metrics.chunks[0].tokens
    # The reference stands between two control tokens, the text before another.
    assert said.metrics.chunks[0].prefix_rows == math.ceil(seconds / 0.16) + 2 + tokens + 1


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_a_thread_count_out_of_range_is_refused(f32_bundle: Path, threads: int) -> None:
    with pytest.raises(UsageError, match="threads"):
        Voice.load(f32_bundle, threads=threads)


def test_an_unknown_profile_is_a_profile_error(f32_bundle: Path) -> None:
    with pytest.raises(ProfileError, match="generic-x86-64"):
        Voice.load(f32_bundle, profile="no-such-board")


def test_anonymous_memory_is_read_from_the_status_file(tmp_path: Path) -> None:
    assert ProcessMemory.read(tmp_path).anonymous == 0
    folder = tmp_path / "proc/self"
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tx\nVmRSS:\t  90 kB\nRssAnon:\t      42 kB\n")
    assert ProcessMemory.read(tmp_path).anonymous == 42 * 1024
    with MemoryWatch(tmp_path) as peak:
        (folder / "status").write_text("RssAnon: 50 kB\n")
        peak.take()
        (folder / "status").write_text("RssAnon: 7 kB\n")
    assert peak.peak == 50 * 1024
