"""Graphs for JetPack 5 load on ONNX Runtime 1.19.2, its last, and give the same output."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import run_graphs

from device_profiles.catalog import load_profile
from edge_runtime.bundle import Bundle
from edge_runtime.errors import UsageError
from edge_runtime.voxcpm2 import probes
from export.synthetic import RECIPES, make_checkpoint
from export.voxcpm2.exporter import export_voxcpm2
from export.weights.oldest_runtime import check_formats
from export.weights.plan import WeightPlan

VARIABLE, VERSION = "BOARDVOICE_ORT119_PYTHON", "1.19.2"
PROFILE = "jetson-xavier-nx"
# What 1.19.2 knows of GroupQueryAttention.
ATTRIBUTES = {"num_heads", "kv_num_heads", "scale", "do_rotary"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The tiny model as `export --profile jetson-xavier-nx` writes it."""
    folder, wanted = tmp_path_factory.mktemp("jetpack5"), load_profile(PROFILE).weights
    plan = WeightPlan.named(wanted.plan, wanted.formats)
    checkpoint = make_checkpoint(folder / "checkpoint", RECIPES["tiny"])
    export_voxcpm2(checkpoint, folder / "bundle", weights=plan, profile=PROFILE)
    return Bundle.open(folder / "bundle")


@pytest.fixture(scope="session")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with ONNX Runtime 1.19.2: the one that is named, else one made now."""
    if named := os.environ.get(VARIABLE):
        return named
    here = [sys.executable] if sys.version_info < (3, 13) else []
    found = [*here, *filter(None, map(shutil.which, ("python3.12", "python3.11", "python3.10")))]
    if not found:
        pytest.skip(f"{VARIABLE} is not set, and no Python up to 3.12 is here to make it with")
    folder = tmp_path_factory.mktemp("ort119")
    python = str(folder / "bin/python")
    try:
        for command in (
            [found[0], "-m", "venv", str(folder)],
            [python, "-m", "pip", "-q", "install", f"onnxruntime=={VERSION}", "numpy<2"],
        ):
            subprocess.run(command, check=True, capture_output=True, timeout=240)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{VARIABLE} is not set, and a venv for it cannot be made: {error}")
    return python


def feeds_of(bundle: Bundle, kv: str) -> dict[str, dict[str, np.ndarray]]:
    """Random inputs by graph file, of the sizes the runtime uses; valid rows in the cache."""
    random = np.random.default_rng(7)
    found = {}
    for name, file in bundle.graphs(kv).items():
        for index, probe in enumerate(probes(bundle.manifest.model, kv)[name][:2]):
            feeds = {}
            for port, array in probe.inputs.items():
                if array.dtype == np.int32:
                    feeds[port] = array
                else:
                    feeds[port] = (random.standard_normal(array.shape) * 0.5).astype(array.dtype)
            if "is_audio" in feeds:
                feeds["is_audio"] = (feeds["is_audio"] > 0).astype(np.float32)
            if index == 0:
                found[Path(file).stem] = feeds
    return found


def test_nothing_in_the_graphs_is_newer(bundle: Bundle) -> None:
    files = [name for name in bundle.manifest.files if name.endswith(".onnx")]
    assert len(files) == 9
    for file in files:
        model = onnx.load(bundle.path(file), load_external_data=False)
        opsets = {entry.domain: entry.version for entry in model.opset_import}
        assert model.ir_version <= 10
        assert opsets[""] <= 21
        for node in model.graph.node:
            attributes = {attribute.name: attribute for attribute in node.attribute}
            if node.op_type == "GroupQueryAttention":
                assert set(attributes) <= ATTRIBUTES
                assert len(node.input) <= 9, "no position ids, bias or sink"
            if node.op_type == "MatMulNBits":
                assert attributes["bits"].i == 4


@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_both_versions_give_the_same(
    bundle: Bundle, kv: str, old_python: str, tmp_path: Path
) -> None:
    for folder in ("feeds", "new", "old"):
        (tmp_path / folder).mkdir()
    for stem, feeds in feeds_of(bundle, kv).items():
        np.savez(tmp_path / "feeds" / f"{stem}.npz", **feeds)
    graphs = bundle.folder / "graphs"
    run_graphs.main(graphs, tmp_path / "feeds", tmp_path / "new")
    done = subprocess.run(
        [old_python, run_graphs.__file__, graphs, tmp_path / "feeds", tmp_path / "old"],
        capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["onnxruntime"] == VERSION
    worst = {}
    for new_file in sorted((tmp_path / "new").iterdir()):
        new, old = np.load(new_file), np.load(tmp_path / "old" / new_file.name)
        assert new.files == old.files
        for name in new.files:
            wanted, found = (one[name].astype(np.float64) for one in (new, old))
            noise = ((wanted - found) ** 2).sum()
            ratio = 10 * np.log10((wanted**2).sum() / noise) if noise else np.inf
            worst[new_file.stem] = min(worst.get(new_file.stem, np.inf), ratio)
    print({stem: round(ratio, 1) for stem, ratio in worst.items()})  # shown with -s
    least = {"lm": 60, "lm.kv_f16": 40}
    assert {stem: ratio for stem, ratio in worst.items() if ratio < least.get(stem, 60)} == {}


def test_formats_that_are_too_new_for_the_profile_are_refused() -> None:
    old, new = load_profile(PROFILE), load_profile("x86-vnni")
    check_formats(WeightPlan.named("int8", old.weights.formats), old)
    check_formats(WeightPlan.named("int4", {"patch_encoder": "int8", "flow": "int8"}), old)
    check_formats(WeightPlan.named("int8"), new)
    with pytest.raises(
        UsageError, match=r"int8-32 needs ONNX Runtime 1\.22; profile jetson-xavie"
    ) as caught:
        check_formats(WeightPlan.named("int8"), old)
    named = re.findall(r"--format (\w+)=int8", caught.value.remedy)
    check_formats(WeightPlan.named("int8", dict.fromkeys(named, "int8")), old)
