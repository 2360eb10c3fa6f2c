"""Prepares a bundle for a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge_runtime.bundle import Bundle
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_bundle import PreparedBundle, make_prepared

Mount = Callable[..., Path]


def make(bundle: Path, state: Path, key: PreparationKey | None = None) -> PreparedBundle:
    opened = Bundle.open(bundle)
    return make_prepared(
        opened, key or PreparationKey.of(opened), state, MemoryGuard(), threads=1
    )
