"""A checkpoint in several files: an index (``*.index.json``) says which shard holds a tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from edge_runtime.errors import CheckpointError
from export.checkpoint.mapped_file import MappedFile
from export.checkpoint.tensor_source import LazyTensor, TensorSource

# A bare name beside the index: no separator, no drive, no leading dot.
_SHARD_NAME: Final = re.compile(r"\w[\w.\-]*")


class ShardIndex(TensorSource):
    """Tensors of all shards that an index names; every shard is opened and checked at once.

    Args:
        index: The ``*.index.json`` file; shards lie beside it.
        open_shard: Reader for one shard.

    Raises:
        CheckpointError: The index is missing or malformed, a shard is missing or torn, or a
            shard does not hold a tensor that the index expects in it.
    """

    def __init__(self, index: Path, open_shard: Callable[[Path], TensorSource]) -> None:
        weight_map = _weight_map(index)
        with ExitStack() as opened:
            shards = {
                name: opened.enter_context(_open(index, name, open_shard))
                for name in sorted(set(weight_map.values()))
            }
            for name, shard in weight_map.items():
                if name not in shards[shard]:
                    raise CheckpointError(
                        f"{index.parent / shard} does not hold tensor {name!r}, which "
                        f"{index.name} expects there.",
                        remedy="The files belong to different versions; download all of them.",
                    )
            self._tensors = {name: shards[shard][name] for name, shard in weight_map.items()}
            self._opened = opened.pop_all()

    def __getitem__(self, name: str) -> LazyTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def close(self) -> None:
        """Close every shard; the tensors cannot be read any more."""
        self._opened.close()


def _open(index: Path, name: str, open_shard: Callable[[Path], TensorSource]) -> TensorSource:
    shard = index.parent / name
    if not shard.exists():
        raise CheckpointError(
            f"{shard} does not exist, but {index.name} names it.",
            remedy="Download the missing shard into the same folder.",
        )
    return open_shard(shard)


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor name to shard file name, with every file name checked."""
    remedy = "Download the index again."
    mapping = MappedFile(index)
    try:
        content = json.loads(mapping.chunk(0, len(mapping)).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{index} is not valid JSON: {error}.", remedy=remedy) from error
    finally:
        mapping.close()
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map with tensors.", remedy=remedy)
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _SHARD_NAME.fullmatch(shard) or ".." in shard:
            raise CheckpointError(
                f"{index}: tensor {name!r} names shard {shard!r}, which is no plain file name.",
                remedy="Shards must lie beside the index; use the published index.",
            )
    return weight_map
