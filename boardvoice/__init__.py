"""Boardvoice: big open speech models on small boards.

The names are loaded when first used, so that the command line can start, and be stopped, before
the libraries behind them are imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_runtime.cancel import CancelToken
    from edge_runtime.errors import BoardvoiceError
    from edge_runtime.speech import Progress, Speech, SpeechMetrics, SpeechOptions
    from edge_runtime.voice import SpeechStream, Voice
    from edge_runtime.voices.store import VoiceStore

_HOMES = {
    "BoardvoiceError": "edge_runtime.errors",
    "CancelToken": "edge_runtime.cancel",
    "Progress": "edge_runtime.speech",
    "Speech": "edge_runtime.speech",
    "SpeechMetrics": "edge_runtime.speech",
    "SpeechOptions": "edge_runtime.speech",
    "SpeechStream": "edge_runtime.voice",
    "Voice": "edge_runtime.voice",
    "VoiceStore": "edge_runtime.voices.store",
}

__all__ = [
    "BoardvoiceError",
    "CancelToken",
    "Progress",
    "Speech",
    "SpeechMetrics",
    "SpeechOptions",
    "SpeechStream",
    "Voice",
    "VoiceStore",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'boardvoice' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
