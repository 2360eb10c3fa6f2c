"""What is written down about a prepared bundle: its key, its files and what its graphs take."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

INFO = "prepared.json"


class PreparedFile(BaseModel):
    """One prepared file. Size and time are checked at every load, the hash by ``--check``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    mtime_ns: int
    sha256: str


class Workspace(BaseModel):
    """Scratch memory of runs up to one size.

    Attributes:
        size: Rows or patches of a run.
        bytes: What it takes.
        cached: Rows in the KV cache with which that was measured.
        per_cached: Bytes for each further one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    bytes: int
    cached: int = 0
    per_cached: float = 0.0

    def with_cached(self, cached: int) -> int:
        """What it takes with so many rows in the cache."""
        # ONNX Runtime's arena doubles.
        further = max((1 << max(cached - 1, 0).bit_length()) - self.cached, 0)
        return self.bytes + int(further * self.per_cached)


class GraphCost(BaseModel):
    """Anonymous memory of one graph, measured on this device when it was prepared.

    Attributes:
        session_bytes: What loading it takes.
        workspaces: What running it takes on top, by size of the run; smallest first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_bytes: int
    workspaces: tuple[Workspace, ...] = Field(min_length=1)

    def workspace_bytes(self, size: int, cached: int = 0) -> int:
        """What a run takes: that of the next size that was measured, or of the largest.

        Args:
            size: Rows or patches of the run.
            cached: Rows in the KV cache after it.
        """
        fitting = (entry for entry in self.workspaces if entry.size >= size)
        return next(fitting, self.workspaces[-1]).with_cached(cached)

    @property
    def least_bytes(self) -> int:
        """What the smallest run takes."""
        return self.workspaces[0].bytes

    @property
    def most_bytes(self) -> int:
        """What the largest run takes."""
        return self.workspaces[-1].bytes


class PreparedInfo(BaseModel):
    """`prepared.json`.

    Attributes:
        bundle: These six are the key, see `edge_runtime.prepare.key`.
        source: Folder of the bundle when it was last loaded from a place of its own.
        files: What lies beside it.
        costs: Memory by graph.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str
    cpu: str
    runtime: str
    kv_dtype: str
    settings: str = ""
    layout: int
    source: str = ""
    files: dict[str, PreparedFile]
    costs: dict[str, GraphCost]
