"""Sound cards, and what plays on them; files and pipes need neither."""

from __future__ import annotations

import importlib
import os
import re

from device_profiles.probes.files import read_text
from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.scene import Scene


def check_audio(scene: Scene) -> list[Finding]:
    """Whether `--play` and pipes to a player will be heard."""
    return [_cards(scene), _library()]


def _cards(scene: Scene) -> Finding:
    places = "/proc/asound/cards, /proc/asound/pcm"
    cards = re.findall(
        r"^\s*(\d+)\s+\[[^\]]*\]:\s*(.+)$", read_text(scene.root / "proc/asound/cards"), re.M
    )
    playing = [
        line
        for line in read_text(scene.root / "proc/asound/pcm").splitlines()
        if "playback" in line
    ]
    if not cards or not playing:
        remedy = "Plug in a sound card; speech to files and pipes needs none."
        if scene.facts.container:
            remedy = "Run the container with --device /dev/snd; files and pipes need no card."
        what = "none can play" if cards else "there is none"
        return Finding("sound card", "warn", what, places, remedy)
    words = "; ".join(f"{number}: {name}" for number, name in cards)
    devices = list((scene.root / "dev/snd").glob("pcmC*p"))
    if not devices:
        return Finding(
            "sound card", "warn", f"{words}; but /dev/snd has no device to play on",
            f"{places}, /dev/snd", "In a container, add --device /dev/snd.",
        )  # fmt: skip
    if not any(os.access(device, os.W_OK) for device in devices):
        return Finding(
            "sound card", "warn", f"{words}; this user may not use it", "/dev/snd",
            "sudo usermod -aG audio $USER, then log in again.",
        )  # fmt: skip
    return Finding("sound card", "ok", words, places)


def _library() -> Finding:
    try:
        importlib.import_module("sounddevice")
    except ImportError:
        return Finding(
            "PortAudio", "skipped", "sounddevice is not installed, so --play is not there",
            "sounddevice", "pip install 'boardvoice[play]'; or pipe '-o -' to aplay.",
        )  # fmt: skip
    except OSError as error:
        return Finding(
            "PortAudio", "warn", f"--play does not work: {error}", "sounddevice",
            "sudo apt install libportaudio2",
        )  # fmt: skip
    return Finding("PortAudio", "ok", "--play works where there is a sound card", "sounddevice")
