"""Tries a provider of whatever ONNX Runtime this interpreter has; run with this tree on its path.

Prints JSON: the outcome of the micro-models, and with a bundle what runs where and the audio's
distance from the CPU's.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

from device_profiles.catalog import load_profile
from device_profiles.hardware import RequiresSection
from device_profiles.schema import Profile
from edge_runtime.backends.micro_model import ATTENTION, LAYERS
from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.backends.providers import check_providers, why_not_trusted
from edge_runtime.voice import Voice

OPENVINO = OrtProvider("cuda", "OpenVINOExecutionProvider", {"device_type": "CPU"})


def board(bundle: str, **changes: object) -> Profile:
    orin = load_profile("jetson-orin-nx-8gb").model_copy(update={"requires": RequiresSection()})
    return orin.model_copy(update=changes)


def gpu_build(bundle: str) -> dict[str, object]:
    """The GPU build of ONNX Runtime on a machine without CUDA: a silent fallback for real."""
    profile = board(bundle)
    checks = {check.name: check.reason for check in check_providers(profile)}
    voice = Voice.load(bundle, profile=profile, threads=1)
    speech = voice.say("One, two.", seed=3, max_len=4)
    return {
        "checks": checks,
        "places": voice.resources.placement.places,
        "warnings": speech.metrics.warnings,
    }


def openvino(bundle: str) -> dict[str, object]:
    """Another provider that really runs, in the place of CUDA."""
    plain = board(bundle, providers=load_profile("x86-vnni").providers,
                  flow=load_profile("x86-vnni").flow)  # fmt: skip
    expected = Voice.load(bundle, profile=plain, threads=1).say("One, two.", seed=3, max_len=4)
    real = OrtProvider.of
    OrtProvider.of = staticmethod(  # type: ignore[method-assign]
        lambda entry: OPENVINO if entry.name == "cuda" else real(entry)
    )
    voice = Voice.load(bundle, profile=board(bundle), threads=1)
    speech = voice.say("One, two.", seed=3, max_len=4)
    wanted = expected.audio.astype(np.float64)
    noise = ((speech.audio - wanted) ** 2).sum()
    return {
        "layers": why_not_trusted(LAYERS, OPENVINO),
        "attention": why_not_trusted(ATTENTION, OPENVINO),
        "places": voice.resources.placement.places,
        "warnings": speech.metrics.warnings,
        "snr": float(10 * np.log10((wanted**2).sum() / max(noise, 1e-30))),
    }


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    result = {"gpu": gpu_build, "openvino": openvino}[sys.argv[1]](sys.argv[2])
    Path(sys.argv[3]).write_text(json.dumps({"onnxruntime": ort.__version__, **result}))
