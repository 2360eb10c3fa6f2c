"""Puts a synthetic checkpoint together: config, tokenizer, model and AudioVAE files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from edge_runtime.atomic import atomic_folder
from edge_runtime.errors import CheckpointError, OutputError, UsageError
from export.synthetic.encoder import FloatName, TensorEncoder
from export.synthetic.recipes import Recipe
from export.synthetic.safetensors_file import write_safetensors
from export.synthetic.tensors import TensorSpec, model_tensors, vae_tensors
from export.synthetic.tokenizer import SyntheticTokenizer
from export.synthetic.torch_file import write_torch_file

ModelFormat = Literal["safetensors", "sharded", "bin"]
VaeFormat = Literal["safetensors", "pth"]
Progress = Callable[[int, int], None]

SYNTHETIC_KEY = "boardvoice_synthetic"
_SHARDS = 3
# Config, tokenizer, file headers and the file system's own needs.
_SLACK_BYTES = 32 << 20


def make_checkpoint(
    folder: Path,
    recipe: Recipe,
    *,
    seed: int = 0,
    dtype: FloatName = "bf16",
    model_format: ModelFormat = "safetensors",
    vae_format: VaeFormat = "safetensors",
    replace: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a checkpoint in the official layout; it appears under its name when it is whole.

    Args:
        folder: Folder to make.
        recipe: Config to follow, an entry of ``RECIPES`` or one of your own.
        seed: The same seed gives the same bytes on every machine. 0 or more.
        dtype: Storage of the model's tensors. The AudioVAE is always float32.
        model_format: One safetensors file, several with an index, or PyTorch's zip format.
        vae_format: safetensors, or PyTorch's zip format.
        replace: Swap out a checkpoint that is there already.
        progress: Called with the tensor bytes written so far and in all.

    Returns:
        ``folder``.

    Raises:
        CheckpointError: ``folder`` is taken.
        OutputError: The disk is full or cannot be written.
        UsageError: ``seed`` is negative.
    """
    if seed < 0:
        raise UsageError(f"Seed {seed} is negative.", remedy="Choose 0 or more.")
    _check_target(folder, replace)
    config = recipe.config()
    model, vae = list(model_tensors(config)), list(vae_tensors(config.audio_vae_config))
    counter = _Counter(progress)
    model_encoder = TensorEncoder(seed, dtype, counter.add)
    vae_encoder = TensorEncoder(seed, "f32", counter.add)
    counter.total = sum(map(model_encoder.size, model)) + sum(map(vae_encoder.size, vae))
    _check_space(folder, counter.total + _SLACK_BYTES)
    try:
        with atomic_folder(folder, replace=replace) as part:
            # The mark lets an exported bundle say that it makes sound, not speech.
            marked = {**recipe.document(), SYNTHETIC_KEY: recipe.name}
            text = json.dumps(marked, indent=2)
            (part / "config.json").write_text(text + "\n", encoding="utf-8", newline="\n")
            SyntheticTokenizer(config.lm_config.vocab_size).write(part)
            if vae_format == "pth":
                write_torch_file(part / "audiovae.pth", vae, vae_encoder, wrap="state_dict")
            else:
                write_safetensors(part / "audiovae.safetensors", vae, vae_encoder)
            if model_format == "bin":
                write_torch_file(part / "pytorch_model.bin", model, model_encoder)
            elif model_format == "sharded":
                _write_shards(part, model, model_encoder)
            else:
                write_safetensors(part / "model.safetensors", model, model_encoder)
    except FileExistsError as error:
        raise _taken(folder) from error
    except OSError as error:
        raise OutputError(
            f"{folder} could not be written: {error.strerror or error}.",
            remedy="Free space there or choose another folder with --out.",
        ) from error
    return folder


class _Counter:
    """Bytes written so far, handed on to the caller's progress."""

    def __init__(self, progress: Progress | None) -> None:
        self.done = 0
        self.total = 0
        self._progress = progress

    def add(self, count: int) -> None:
        self.done += count
        if self._progress is not None:
            self._progress(self.done, self.total)


def _write_shards(part: Path, specs: Sequence[TensorSpec], encoder: TensorEncoder) -> None:
    total = sum(map(encoder.size, specs))
    shards: list[list[TensorSpec]] = [[] for _ in range(_SHARDS)]
    offset = 0
    for spec in specs:
        shards[offset * _SHARDS // total].append(spec)
        offset += encoder.size(spec)
    shards = [shard for shard in shards if shard]
    places: dict[str, str] = {}
    for index, shard in enumerate(shards, start=1):
        name = f"model-{index:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(part / name, shard, encoder)
        places.update({spec.name: name for spec in shard})
    document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    text = json.dumps(document, indent=2)
    (part / "model.safetensors.index.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def _check_target(folder: Path, replace: bool) -> None:
    if not folder.exists():
        return
    if not replace:
        raise _taken(folder)
    # --force must not wipe a folder that was named by mistake.
    is_checkpoint = folder.is_dir() and (
        (folder / "config.json").is_file() or not any(folder.iterdir())
    )
    if not is_checkpoint:
        raise CheckpointError(
            f"{folder} exists and is not a checkpoint folder.",
            remedy="Choose another folder with --out.",
        )


def _taken(folder: Path) -> CheckpointError:
    return CheckpointError(
        f"{folder} exists.", remedy="Choose another folder with --out, or replace it with --force."
    )


def _check_space(folder: Path, needed: int) -> None:
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise OutputError(
            f"{parent} has {free / 1e9:.2f} GB free, the checkpoint needs {needed / 1e9:.2f} GB.",
            remedy="Free space there or choose another folder with --out.",
        )
