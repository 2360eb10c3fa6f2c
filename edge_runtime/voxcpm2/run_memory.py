"""What each run of a request takes, asked for before it: scratch memory and KV rows."""

from __future__ import annotations

from collections.abc import Callable

from edge_runtime.kv_cache import KVType
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.prepare.prepared_info import GraphCost, Workspace
from edge_runtime.voxcpm2.largest_inputs import AUDIO_SIZES, LM_ROWS, PREFIX_SIZES
from edge_runtime.voxcpm2.lm import PREFILL_ROWS
from edge_runtime.voxcpm2.prompt import ENCODE_PATCHES
from edge_runtime.voxcpm2.spec import GraphName, VoxCpm2Spec

_MIB = 1 << 20
# Rows that a prefill reads at once when there is no room for more, and when a soft limit is near.
# The rows that come out are the same.
_TIGHT_ROWS = 16
_CAREFUL_ROWS = 64
# Graphs that keep what their one size of run takes.
_HELD: tuple[GraphName, ...] = ("lm", "patch_encoder", "flow", "flow_condition", "vae_decoder")


class RunMemory:
    """Asks the guard before runs that take memory.

    Runs of odd sizes give their scratch memory back, so that only the largest of them counts
    beside what stays; see docs/decisions.md.

    Args:
        guard: Is asked.
        cost: Cost of a graph by its name.
        row_bytes: Bytes of one KV row.

    Attributes:
        most_rows: Most rows per prefill run.
    """

    def __init__(
        self, guard: MemoryGuard, cost: Callable[[GraphName], GraphCost], row_bytes: int
    ) -> None:
        self._guard = guard
        self._cost = cost
        self._row_bytes = row_bytes
        self._warm: set[GraphName] = set()
        self._small = False
        # Reserved for graphs that run after the prefill, and not memory yet: a neighbour may take
        # it meanwhile.
        self._ahead = 0
        self.most_rows = PREFILL_ROWS

    def forget(self, name: GraphName) -> None:
        """A graph was loaded afresh: what its runs take is still to come."""
        self._warm.discard(name)

    def start(self, *, rows: int, reference_patches: int, capacity: int, fresh_bytes: int) -> None:
        """Before anything of an utterance is computed: all that it will hold at once.

        Asked for piece by piece, each would be measured against the same free memory.

        Args:
            rows: Rows of the prefix.
            reference_patches: Patches whose rows are still to be computed.
            capacity: Rows of the KV cache.
            fresh_bytes: Bytes of the KV cache that are not memory yet.

        Raises:
            MemoryBudgetError: There is no room, even in the smallest pieces.
        """
        cold = [name for name in _HELD if name not in self._warm]
        held = sum(self._cost(name).workspace_bytes(1, capacity) for name in cold)
        brief = self._cost("lm").workspace_bytes(min(rows, _TIGHT_ROWS), rows)
        if reference_patches:
            count = min(reference_patches, ENCODE_PATCHES)
            brief = max(brief, self._cost("patch_encoder").workspace_bytes(count))
        self._guard.reserve(held + brief + fresh_bytes, "Speaking")
        later = (name for name in cold if name != "lm")
        self._ahead = sum(self._cost(name).workspace_bytes(1, capacity) for name in later)
        self._warm.update(cold)

    def clip(self, patches: int) -> None:
        """Before a run of the audio encoder."""
        needed = self._cost("vae_encoder").workspace_bytes(patches)
        self._guard.check("Encoding the reference", needed)

    def prefix(self, patches: int) -> None:
        """Before a run of the patch encoder over patches of the prefix."""
        needed = self._cost("patch_encoder").workspace_bytes(patches)
        self._guard.check("Encoding the prefix", needed)

    def rows(self, left: int, cached: int) -> int:
        """Rows that the next run of a prefill is to read, of those that are left.

        Args:
            left: Rows still to be read.
            cached: Rows in the KV cache.

        Raises:
            MemoryBudgetError: There is no room for the smallest number.
        """
        purpose = "Reading the prefix"
        self._guard.check(purpose)
        wanted = min(left, self.most_rows)
        self._guard.make_room(self._rows_bytes(wanted, cached), purpose)
        for count in (wanted, _CAREFUL_ROWS, _TIGHT_ROWS):
            needed, soft = self._rows_bytes(count, cached), count > _CAREFUL_ROWS
            if count <= wanted and self._guard.has_room(needed, soft=soft):
                break
        count = min(count, wanted)
        self._guard.reserve(self._rows_bytes(count, cached), purpose)
        if count < wanted and not self._small:
            self._guard.note("made room", f"reads the prefix {count} rows at a time")
        self._small = count < wanted
        return count

    def _rows_bytes(self, rows: int, cached: int) -> int:
        scratch = self._cost("lm").workspace_bytes(rows, cached + rows)
        return scratch + rows * self._row_bytes + self._ahead


def estimated_workspaces(spec: VoxCpm2Spec, kv_dtype: KVType) -> dict[str, tuple[Workspace, ...]]:
    """Scratch memory by graph where it was not measured: a third more than the full-size model's.

    The largest activation of a run, times how often the graph was found to hold it.
    """
    samples = spec.patch_size * spec.vae_encoder.hop
    channels = max(shape[1] for shape in spec.vae_encoder.states[:2])
    per = {
        "lm": (LM_ROWS, 32 * spec.hidden),
        "patch_encoder": (PREFIX_SIZES, 48 * (spec.patch_size + 1) * spec.flow.hidden),
        "vae_encoder": (AUDIO_SIZES, 8 * samples * channels),
    }

    def workspace(name: str, size: int, one: int) -> Workspace:
        # Over an f16 cache all scores are held, and the cache of one layer in f32.
        heads = spec.hidden // spec.kv.head_size
        further = 8 * size * heads + 16 * spec.kv.num_kv_heads * spec.kv.head_size
        per_cached = further if name == "lm" and kv_dtype == "f16" else 0
        return Workspace(size=size, bytes=4 * _MIB + 4 * size * one, per_cached=per_cached)

    return {
        name: tuple(workspace(name, size, one) for size in sizes)
        for name, (sizes, one) in per.items()
    }
