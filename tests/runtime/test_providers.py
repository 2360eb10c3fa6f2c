"""A provider is used only if it is really there and returns the right numbers."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from make_micro_models import make_attention, make_layers
from stand_in_provider import Builds, StandIn, use_fake_device

from device_profiles.catalog import load_profile
from device_profiles.providers import CudaProvider, TensorRtProvider
from device_profiles.schema import Profile
from edge_runtime.backends.micro_model import ATTENTION, LAYERS
from edge_runtime.backends.node_census import NodeCensus
from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.backends.providers import ProviderCheck, check_providers, why_not_trusted
from edge_runtime.engines.cache import EngineCache
from edge_runtime.errors import BackendError
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.memory.limits import MemorySettings

ALL = lambda: ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]  # noqa: E731


def jetson(**changes: object) -> Profile:
    return load_profile("jetson-orin-nx-8gb").model_copy(update=changes)


@pytest.fixture(autouse=True)
def fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_device(monkeypatch)


def checks(
    stand_in: StandIn, engines: EngineCache | None = None, builds: Builds | None = None
) -> dict[str, ProviderCheck]:
    found = check_providers(
        jetson(), engines=engines, open_=stand_in, build=builds or Builds(), available=ALL
    )
    assert [check.name for check in found] == ["cuda", "tensorrt", "cpu"]
    return {check.name: check for check in found}


def test_the_micro_models_are_what_is_made_of_the_exporters_operators() -> None:
    assert onnx.load(LAYERS.file) == make_layers()
    assert onnx.load(ATTENTION.file) == make_attention()
    for model in (make_layers(), make_attention()):
        onnx.checker.check_model(model)
        assert (model.ir_version, model.opset_import[0].version) <= (10, 21)


def test_the_cpu_computes_the_right_numbers() -> None:
    found = check_providers(load_profile("x86-vnni"))
    assert [(check.name, check.reason) for check in found] == [("cpu", "")]
    assert why_not_trusted(ATTENTION, OrtProvider("cpu")) == ""


def test_a_profile_that_a_full_disk_has_torn_is_a_reason(tmp_path: Path) -> None:
    profile = tmp_path / "run.json"
    profile.write_text('[{"cat": "Node", "na', "utf-8")
    with pytest.raises(BackendError, match="Which provider ran what"):
        NodeCensus.read(profile)


def test_without_a_temporary_folder_only_the_cpu_is_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(**_: object) -> None:
        raise FileNotFoundError("no usable temporary folder")

    monkeypatch.setattr("edge_runtime.backends.node_census.tempfile.TemporaryDirectory", nowhere)
    found = checks(StandIn())
    assert found["cpu"].reason == ""
    assert "no usable temporary folder" in found["cuda"].reason


def test_providers_that_compute_right_pass_with_their_options() -> None:
    stand_in = StandIn()
    assert all(check.passed and not check.attention for check in checks(stand_in).values())
    tried = {(name, providers[0].name) for name, providers in stand_in.opened}
    assert tried == {
        ("micro_layers.onnx", "cuda"), ("micro_attention.onnx", "cuda"),
        ("micro_layers.onnx", "tensorrt"), ("micro_layers.onnx", "cpu"),
    }  # fmt: skip
    # The CPU is always there for what the provider leaves.
    assert all(providers[-1].name == "cpu" for _, providers in stand_in.opened)


def test_a_build_without_the_provider_is_told_from_one_with_it() -> None:
    found = check_providers(jetson(), open_=StandIn(), available=lambda: ["CPUExecutionProvider"])
    assert [check.passed for check in found] == [False, False, True]
    assert "does not have it" in found[0].reason
    assert "uninstall" in found[0].remedy


def test_a_session_that_silently_lacks_the_provider_is_found() -> None:
    found = checks(StandIn(silent={"cuda"}))
    assert "without it and without an error, on CPU alone" in found["cuda"].reason
    assert found["tensorrt"].passed
    assert found["cpu"].passed


def test_wrong_numbers_are_found() -> None:
    found = checks(StandIn(wrong={"cuda", "tensorrt"}))
    assert found["cuda"].reason == "convolution and products give wrong results"
    assert not found["tensorrt"].passed
    assert found["cpu"].passed


def test_what_creating_a_session_raises_is_the_reason() -> None:
    found = checks(StandIn(broken={"tensorrt": "Please install TensorRT libraries.\nat line 7"}))
    assert found["tensorrt"].reason == "Please install TensorRT libraries"
    assert found["cuda"].passed


def test_what_a_run_raises_is_the_reason() -> None:
    found = checks(StandIn(run_error="CUDA error 209: no kernel image is available\nmore"))
    assert found["cuda"].reason == "it fails: CUDA error 209: no kernel image is available"


def test_products_that_are_left_to_the_cpu_are_found() -> None:
    found = checks(StandIn(on_cpu={"MatMul"}))
    assert "leaves" in found["cuda"].reason
    assert "MatMul of it to the CPU" in found["cuda"].reason


def test_a_provider_without_attention_still_serves_the_rest() -> None:
    found = checks(StandIn(on_cpu={"GroupQueryAttention"}))["cuda"]
    assert found.passed
    assert "GroupQueryAttention of it to the CPU" in found.attention


def test_cuda_options_are_those_of_the_profile() -> None:
    plain = OrtProvider.of(CudaProvider(name="cuda"))
    assert plain.entry == (
        "CUDAExecutionProvider",
        {
            "device_id": "0",
            "arena_extend_strategy": "kSameAsRequested",
            "cudnn_conv_algo_search": "HEURISTIC",
            "do_copy_in_default_stream": "1",
            "use_tf32": "0",
        },
    )
    full = OrtProvider.of(
        CudaProvider(
            name="cuda", device_id=1, memory_limit_mib=64, arena_extend="next_power_of_two",
            conv_search="default", cuda_graph=True,
        )
    )  # fmt: skip
    assert full.options["gpu_mem_limit"] == str(64 << 20)
    assert full.options["arena_extend_strategy"] == "kNextPowerOfTwo"
    assert full.options["cudnn_conv_algo_search"] == "DEFAULT"
    assert full.options["enable_cuda_graph"] == "1"
    assert (full.device, full.device_id, full.captures) == ("cuda", 1, True)
    assert "enable_cuda_graph" not in full.without_capture().options


def test_tensorrt_tries_the_micro_model_with_shapes_and_caches(tmp_path: Path) -> None:
    stand_in = StandIn()
    engines, builds = EngineCache(tmp_path, "orin"), Builds()
    checks(stand_in, engines, builds)
    ((file, (provider,)),) = builds.asked
    assert file == "micro_layers.onnx"
    checks(stand_in, engines, builds)
    assert len(builds.asked) == 1
    options = next(p[0].options for _, p in stand_in.opened if p[0].name == "tensorrt")
    assert options["trt_profile_min_shapes"] == "audio:1x8x1"
    assert options["trt_profile_opt_shapes"] == options["trt_profile_max_shapes"] == "audio:1x8x12"
    assert options["trt_fp16_enable"] == "1"
    assert options["trt_max_workspace_size"] == str(256 << 20)
    assert options["trt_builder_optimization_level"] == "3"
    assert options == provider.options
    folder = Path(options["trt_engine_cache_path"])
    assert folder.parent == tmp_path / "engines"
    assert options["trt_timing_cache_path"] == str(folder)
    assert OrtProvider.of(TensorRtProvider(name="tensorrt", cuda_graph=True)).captures


def test_tensorrt_that_does_not_survive_its_start_is_ruled_out(tmp_path: Path) -> None:
    def killed(*_: object) -> None:
        raise BackendError("the process that builds its engine was killed")

    engines = EngineCache(tmp_path, "orin")
    found = check_providers(jetson(), engines=engines, open_=StandIn(), build=killed, available=ALL)
    assert found[1].reason == "the process that builds its engine was killed"
    assert found[0].passed
    poor = MemoryGuard(MemorySettings(hard_bytes=64 << 20))
    builds = Builds()
    found = check_providers(
        jetson(), engines=engines, guard=poor, open_=StandIn(), build=builds, available=ALL
    )
    assert "Starting cuda needs 512 MiB" in found[0].reason
    assert "Starting tensorrt needs 512 MiB" in found[1].reason
    assert found[2].passed
    assert not builds.asked


def test_a_state_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "engines").write_text("in the way")
    engines = EngineCache(tmp_path, "orin")
    found = check_providers(
        jetson(), engines=engines, open_=StandIn(), build=Builds(), available=ALL
    )
    assert "its engine cannot be kept in" in found[1].reason
