"""Playing through PortAudio and ALSA for real, into a file instead of a loudspeaker."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ALSA = Path("/usr/share/alsa/alsa.conf")
RATE = 48_000
PLAY = """
import sys
import numpy as np
from edge_runtime.audio.playback import Player

tone = np.load(sys.argv[1])
# ALSA's null device is faster than any clock: all has to be there at the start.
with Player(48_000, device="to_a_file", volume=0.5, prebuffer=5.0) as player:
    for start in range(0, len(tone), 7_680):
        player.write(tone[start : start + 7_680])
print(player.underruns, player.notes)
"""


def test_alsa_gets_every_sample_in_order(tmp_path):
    try:
        import sounddevice  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(f"sounddevice or PortAudio is not here: {error}")
    if not ALSA.exists():
        pytest.skip(f"ALSA's configuration {ALSA} is not here")
    written = tmp_path / "played.raw"
    config = tmp_path / "asound.conf"
    config.write_text(
        f"<{ALSA}>\n"
        f'pcm.to_a_file {{ type file slave.pcm "null" file "{written}" format "raw" '
        'hint { show on description "to_a_file" } }\n'
    )
    tone = np.sin(np.arange(RATE) / 20).astype(np.float32)
    np.save(tmp_path / "tone.npy", tone)
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp_path / "tone.npy")],
        env={**os.environ, "ALSA_CONFIG_PATH": str(config)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0 []"
    played = np.fromfile(written, np.float32)
    first = int(np.flatnonzero(played)[0])
    # The first sample of the tone is 0.
    np.testing.assert_array_equal(played[first : first + RATE - 1], tone[1:] * np.float32(0.5))
    assert not played[first + RATE - 1 :].any()
