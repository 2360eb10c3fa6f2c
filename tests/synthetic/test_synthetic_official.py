"""The official package takes every synthetic checkpoint, and what it computes is usable."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from export.synthetic import RECIPES, make_checkpoint
from export.synthetic.tensors import model_tensors, vae_tensors

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

NAMES = [name for name in RECIPES if name != "full"]


@pytest.fixture(scope="module")
def official() -> Iterator[Any]:
    """The package's VoxCPM2 module; its unused import of torchaudio is stubbed where missing."""
    stub = None
    if "torchaudio" not in sys.modules and importlib.util.find_spec("torchaudio") is None:
        stub = types.ModuleType("torchaudio")
        stub.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
        sys.modules["torchaudio"] = stub
    try:
        pytest.importorskip("voxcpm")
        yield importlib.import_module("voxcpm.model.voxcpm2")
    finally:
        if stub is not None:
            sys.modules.pop("torchaudio", None)


def _expected(config: Any) -> dict[str, tuple[int, ...]]:
    vae = vae_tensors(config.audio_vae_config)
    return {
        **{spec.name: spec.shape for spec in model_tensors(config)},
        **{f"audio_vae.{spec.name}": spec.shape for spec in vae},
    }


def _shapes(model: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


@pytest.mark.parametrize("name", NAMES)
def test_names_and_shapes_equal_the_official_state_dict(
    name: str, official: Any, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "made", RECIPES[name])
    model = official.VoxCPM2Model.from_local(str(folder), optimize=False, device="cpu")
    assert _shapes(model) == _expected(RECIPES[name].config())


def test_full_names_and_shapes_equal_the_official_state_dict(
    official: Any, tiny_folder: Path
) -> None:
    # The caches are allocated on the CPU even here, hence a short one.
    document = {**RECIPES["full"].document(), "max_length": 8, "device": "cpu"}
    config = official.VoxCPMConfig.model_validate(document)
    tokenizer = official.LlamaTokenizerFast.from_pretrained(str(tiny_folder))
    with torch.device("meta"):
        vae = official.AudioVAEV2(config=config.audio_vae_config)
        model = official.VoxCPM2Model(config, tokenizer, vae, device="cpu")
    assert _shapes(model) == _expected(RECIPES["full"].config())


@pytest.mark.parametrize(
    "name",
    ["tiny", "mup", "short-original", "vae-dense", "cond-concat", "noise-block", "odd-rates"],
)
def test_activations_stay_in_range(name: str, official: Any, tmp_path: Path) -> None:
    patches = 40
    folder = make_checkpoint(tmp_path / "made", RECIPES[name])
    model = official.VoxCPM2Model.from_local(str(folder), optimize=False, device="cpu")
    margins: list[float] = []
    model.stop_head.register_forward_hook(
        lambda _module, _inputs, logits: margins.append(float(logits[0, 1] - logits[0, 0]))
    )
    torch.manual_seed(0)
    tokens = [*model.text_tokenizer("Hello world, 你好世界."), 101]
    rows = len(tokens)
    ones = torch.ones(1, rows, dtype=torch.int32)
    with torch.inference_mode():
        latents, _ = model.inference(
            torch.tensor([tokens]),
            ones,
            torch.zeros(1, rows, model.patch_size, model.feat_dim),
            torch.zeros_like(ones),
            min_len=patches,
            max_len=patches,
            inference_timesteps=4,
        )
        wave = model.audio_vae.decode(torch.randn(1, model.feat_dim, 40))
        rate = model.audio_vae.sample_rate
        encoded = model.audio_vae.encode(0.1 * torch.randn(1, 1, rate), rate)
    assert latents.abs().max() < 10
    assert 0.5 < float(latents.std()) < 3
    assert 0.03 < float(wave.std()) < 0.3
    assert 0.3 < float(encoded.std()) < 3
    assert float(encoded.std(-1).mean()) > 0.2
    changes = [abs(after - before) for before, after in itertools.pairwise(margins)]
    assert max(changes) > 0.1
    assert margins[0] < 0 or margins[1] < 0


def test_multi_character_chinese_entries_are_split(official: Any, tiny_folder: Path) -> None:
    tokenizer = official.LlamaTokenizerFast.from_pretrained(str(tiny_folder))
    split = official.mask_multichar_chinese_tokens(tokenizer)
    assert "世界" in tokenizer.tokenize("你好世界")
    assert split.tokenize("你好世界") == ["你", "好", "世", "界"]
