"""Settings that contradict each other or the chip are refused, with what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_profiles.catalog import ProfileLoadError, load_profile

GPU = "providers: [{name: cuda}, {name: tensorrt}, {name: cpu}]\nkv: {dtype: f16}\n"


def load(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\ntitle: Mine\n{text}")
    load_profile(str(path))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("soc: rk3588\n" + GPU, "providers: cuda is impossible with soc rk3588; allowed: cpu"),
        ("soc: bcm2712\n" + GPU, "providers: cuda is impossible with soc bcm2712"),
        (GPU, "providers: cuda is impossible with soc any"),
        ("extends: rock-5b\nflow: {place: rknn-sim, graphs: portable}\n",
         "flow.place: rknn-sim is impossible with soc rk3588; allowed: cpu"),
        ("extends: jetson-thor\nflow: {place: rknn}\n",
         "flow.place: rknn is impossible with soc tegra264; allowed: cuda, tensorrt, cpu"),
        ("extends: x86-vnni\nflow: {place: cuda}\n",
         "flow.place: cuda is not among the providers; allowed: cpu"),
        ("extends: rock-5b\nflow: {graphs: ort}\n",
         "flow.graphs: flow.place rknn needs portable, not ort"),
        ("extends: x86-vnni\nflow: {graphs: portable}\n",
         "flow.graphs: flow.place cpu needs ort, not portable"),
        ("extends: x86-vnni\nflow: {precision: f16}\n", "flow.precision: the CPU follows"),
        ("extends: x86-vnni\nflow: {npu_cores: '0'}\n",
         "flow.npu_cores: only with flow.place rknn"),
        # YAML reads 0_1_2 as a number.
        ("extends: rk3588-generic\nflow: {npu_cores: 0_1_2}\n",
         "flow.npu_cores: Input should be 'auto'"),
        ("extends: rk3576-generic\nflow: {npu_cores: '2'}\n",
         "flow.npu_cores: soc rk3576 has 2 NPU cores, not 2"),
        ("soc: x86-64\nproviders: [{name: cpu}, {name: cuda}]\nkv: {dtype: f16}\n",
         "providers: the last must be cpu"),
        ("soc: x86-64\nproviders: [{name: cpu}, {name: cpu}]\n",
         "providers: each may be named once"),
        ("soc: x86-64\nproviders: []\n", "providers"),
        ("extends: jetson-orin-nx-16gb\nkv: {dtype: f32}\n",
         "kv.dtype: f32 is impossible with provider cuda first; allowed: f16"),
        ("memory: {hard_mib: 500, soft_mib: 600}\n",
         "memory.soft_mib: 600 is above memory.hard_mib; allowed: up to 500"),
        ("soc: rk3599\n", "soc: Input should be 'any', 'x86-64', 'tegra194'"),
        ("soc: x86-64\nproviders: [{name: rocm}, {name: cpu}]\n", "'cpu', 'cuda', 'tensorrt'"),
        ("soc: x86-64\nproviders: [{name: cuda, mem_limit: 5}, {name: cpu}]\nkv: {dtype: f16}\n",
         "mem_limit: no such key; there are name, device_id, memory_limit_mib"),
        ("flow: {place: gpu}\n",
         "flow.place: Input should be 'cpu', 'cuda', 'tensorrt', 'rknn' or 'rknn-sim'"),
        ("figures: {memory_gb_s: {value: 3, measured: true}}\n", "figures.memory_gb_s.source"),
        ("figures: {memory_gbs: {value: 3}}\n",
         "figures.memory_gbs: no such key; there are memory_gb_s"),
        ("figures: {memory_gb_s: {value: -1, measured: true, source: somebody}}\n",
         "figures.memory_gb_s.value: Input should be greater than 0"),
        ("requires: {onnxruntime: newest}\n", "requires.onnxruntime"),
        ("match: {memory_mib: [9, 3]}\n", "match: memory_mib must be the least and the most"),
    ],
)  # fmt: skip
def test_the_contradiction_is_named_with_what_is_allowed(
    tmp_path: Path, text: str, named: str
) -> None:
    with pytest.raises(ProfileLoadError) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "mine.yaml") in str(caught.value)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "soc: x86-64\n" + GPU + "flow: {place: cuda, precision: f16}\n",
        "extends: rock-5b\nflow: {npu_cores: '0_1_2'}\n",
        "extends: rock-5b\nflow: {place: cpu, graphs: ort, precision: null}\n",
        "memory: {hard_mib: 500, soft_mib: 500}\n",
    ],
)
def test_what_is_possible_is_taken(tmp_path: Path, text: str) -> None:
    load(tmp_path, text)
