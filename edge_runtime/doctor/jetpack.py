"""Releases of JetPack, and which ONNX Runtime runs on their GPU.

Source: NVIDIA's release notes as jetson_stats lists them, the jetson-ai-lab index, and the reports
onnxruntime 20140, 22809, 24380 and 27944, jetson-containers 1283 and 1462.
"""

from __future__ import annotations

from dataclasses import dataclass

_NO_BUILD = (
    "NVIDIA's GPU builds for it are for Python {python}, which this package does not run on; the "
    "CPU does all the work here."
)


@dataclass(frozen=True)
class JetPack:
    """One range of releases.

    Attributes:
        name: JetPack's version.
        first: First version of Jetson Linux.
        before: First version that no longer belongs to it.
        python: Its own Python.
        cuda: Its CUDA.
        cudnn: Major version of its cuDNN.
        wheel: Where ONNX Runtime for its GPU comes from; empty where there is none.
    """

    name: str
    first: tuple[int, ...]
    before: tuple[int, ...]
    python: str
    cuda: str
    cudnn: str
    wheel: str = ""

    @property
    def advice(self) -> str:
        """How to come by ONNX Runtime for this GPU."""
        return self.wheel or _NO_BUILD.format(python=self.python)


_INDEX = "pip install onnxruntime-gpu --index-url https://pypi.jetson-ai-lab.io/{}"
JETPACKS = (
    JetPack("4", (32,), (33,), "3.6", "10.2", "8"),
    JetPack("5", (34,), (36,), "3.8", "11.4", "8"),
    JetPack(
        "6.0", (36,), (36, 4), "3.10", "12.2", "8",
        "Take onnxruntime-gpu for JetPack 6.0 (cp310, cuDNN 8) from the Jetson Zoo, or update to "
        "JetPack 6.2.",
    ),
    JetPack("6.1 or 6.2", (36, 4), (37,), "3.10", "12.6", "9", _INDEX.format("jp6/cu126")),
    JetPack("7.0 or 7.1", (38,), (39,), "3.12", "13.0", "9", _INDEX.format("sbsa/cu130")),
    JetPack("7.2", (39,), (40,), "3.12", "13.2", "9", _INDEX.format("sbsa/cu130")),
)  # fmt: skip


def jetpack_of(l4t: str) -> JetPack | None:
    """The JetPack of a version of Jetson Linux such as ``36.4.3``; None if it is not known."""
    version = tuple(int(part) for part in l4t.split(".") if part.isdecimal())
    return next((one for one in JETPACKS if one.first <= version < one.before), None)
