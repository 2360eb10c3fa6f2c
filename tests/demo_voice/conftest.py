"""Shared pieces of the demo voice's tests."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

import pytest


@pytest.fixture(scope="session")
def official_model() -> Any:
    """`voxcpm.model.voxcpm2`; its unused import of torchaudio is stubbed where that is missing."""
    if importlib.util.find_spec("voxcpm") is None:
        pytest.skip("voxcpm is not installed: the reference extra has it")
    if "torchaudio" in sys.modules or importlib.util.find_spec("torchaudio") is not None:
        return importlib.import_module("voxcpm.model.voxcpm2")
    stub = types.ModuleType("torchaudio")
    stub.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
    sys.modules["torchaudio"] = stub
    try:
        return importlib.import_module("voxcpm.model.voxcpm2")
    finally:
        sys.modules.pop("torchaudio", None)
