"""Which ONNX Runtime is installed, and from which packages."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import distributions
from typing import Any

# The binding's file of facts about the build; not all versions have all of them.
_FACTS = "onnxruntime.capi.build_and_package_info"


@dataclass(frozen=True)
class OrtInstall:
    """An installed ONNX Runtime.

    Attributes:
        version: Empty where it cannot be imported.
        providers: What the build has.
        packages: Name and version of every installed package that brings an ``onnxruntime``.
        cuda: Version of CUDA that it was built for; empty if for none, or unknown.
        cudnn: Version of cuDNN, likewise.
        file: Where it lies.
        error: Why it cannot be imported.
    """

    version: str = ""
    providers: tuple[str, ...] = ()
    packages: tuple[tuple[str, str], ...] = ()
    cuda: str = ""
    cudnn: str = ""
    file: str = ""
    error: str = ""

    @staticmethod
    def read() -> OrtInstall:
        """What this Python has."""
        found = tuple(sorted(_packages(distributions())))
        try:
            ort: Any = importlib.import_module("onnxruntime")
        except (ImportError, OSError) as error:
            return OrtInstall(packages=found, error=str(error))
        try:
            facts = vars(importlib.import_module(_FACTS))
        except ImportError:
            facts = {}
        return OrtInstall(
            version=str(ort.__version__),
            providers=tuple(ort.get_available_providers()),
            packages=found,
            cuda=str(facts.get("cuda_version") or ""),
            cudnn=str(facts.get("cudnn_version") or ""),
            file=str(ort.__file__),
        )


def _packages(installed: Iterable[Any]) -> set[tuple[str, str]]:
    found = set()
    for one in installed:
        name = str(one.metadata["Name"] or "").lower().replace("_", "-")
        is_build = name == "onnxruntime" or name.startswith("onnxruntime-")
        if is_build and not name.startswith(("onnxruntime-extensions", "onnxruntime-genai")):
            found.add((name, str(one.version)))
    return found
