"""Boardvoice: big open speech models on small boards."""

from edge_runtime.cancel import CancelToken
from edge_runtime.errors import BoardvoiceError
from edge_runtime.speech import Progress, Speech, SpeechMetrics, SpeechOptions
from edge_runtime.voice import SpeechStream, Voice

__all__ = [
    "BoardvoiceError",
    "CancelToken",
    "Progress",
    "Speech",
    "SpeechMetrics",
    "SpeechOptions",
    "SpeechStream",
    "Voice",
]
