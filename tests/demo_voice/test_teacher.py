"""Teacher speech and its labels."""

from __future__ import annotations

import numpy as np
import pytest

from training.demo_voice.teacher import FRAME, PATCH, RATE, HibariTeacher

pytest.importorskip("hibari", reason="hibari-tts is not installed: pip install '.[train]'")
pytest.importorskip("onnx")


def test_teacher_says_what_its_labels_say() -> None:
    text = "Now serving number forty two."
    said = HibariTeacher("grid").say(text, 0)
    assert len(said.audio) % PATCH == 0
    assert len(said.phonemes) == len(said.audio) // FRAME
    assert said.words is not None
    spoken = said.words[said.words >= 0]
    assert (np.diff(spoken) >= 0).all()
    assert set(spoken.tolist()) == set(range(5))
    assert np.array_equal(said.audio, HibariTeacher("grid").say(text, 0).audio)


def test_pitch_on_the_grid_repeats_from_frame_to_frame() -> None:
    """In a voiced vowel the waveform of a frame resembles the next one's; with free pitch less."""

    def likeness(pitch: str) -> float:
        audio = HibariTeacher(pitch).say("Aah, oh, aah, oh.", 0).audio  # type: ignore[arg-type]
        frames = audio.reshape(-1, FRAME)
        loud = np.square(frames).mean(1) > 0.2 * np.square(frames).mean(1).max()
        pairs = [i for i in range(len(frames) - 1) if loud[i] and loud[i + 1]]
        return float(np.mean([np.corrcoef(frames[i], frames[i + 1])[0, 1] for i in pairs]))

    assert RATE == 25 * FRAME
    assert likeness("flat") > likeness("natural") + 0.2
    assert likeness("grid") > likeness("natural") + 0.1
