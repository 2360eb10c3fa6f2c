"""Graphs run where the profile wants them, or elsewhere with the reason."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from stand_in_provider import Builds, StandIn, use_stand_in

from boardvoice.main import main
from device_profiles.catalog import load_profile
from device_profiles.flow_placement import FlowSection
from device_profiles.hardware import RequiresSection
from device_profiles.providers import CpuProvider, CudaProvider, TensorRtProvider
from device_profiles.schema import KvSection, MemorySection, Profile
from edge_runtime.backends import device_graph
from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.backends.providers import ProviderCheck
from edge_runtime.errors import BackendError, ProfileError
from edge_runtime.golden.selftest import selftest
from edge_runtime.loader import LoadOptions, open_device
from edge_runtime.placement import plan_placement
from edge_runtime.requirements import Shortfall
from edge_runtime.voice import Voice

CPU, CUDA = CpuProvider(name="cpu"), CudaProvider(name="cuda")
TENSORRT = TensorRtProvider(name="tensorrt")
GRAPHS = {"lm", "patch_encoder", "flow", "flow_time", "flow_condition", "vae_decoder"}
TEXT = "One, two."


def profile(*providers: object, place: str = "cuda", **changes: object) -> Profile:
    """A profile for a made-up board; tiny models fit anywhere."""
    graphs = "portable" if place == "tensorrt" else "ort"
    flow = FlowSection(place=place, graphs=graphs, precision=None if place == "cpu" else "f16")
    base = load_profile("jetson-orin-nx-8gb")
    values = {
        "providers": (*providers, CPU),
        "flow": flow,
        "requires": RequiresSection(),
        "memory": MemorySection(prepare_from_mib=0),
        **changes,
    }
    return base.model_copy(update=values)


def speak(bundle: Path, profile: Profile, **options: object) -> tuple[Voice, np.ndarray, list[str]]:
    voice = Voice.load(bundle, profile=profile, threads=1, **options)
    speech = voice.say(TEXT, seed=3, max_len=6)
    return voice, speech.audio, speech.metrics.warnings


@pytest.fixture(scope="session")
def on_cpu(f32_bundle: Path) -> np.ndarray:
    plain = profile(place="cpu", providers=(CPU,), kv=KvSection(dtype="f16"))
    return speak(f32_bundle, plain)[1]


def test_every_graph_runs_on_the_provider_and_the_samples_are_the_same(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = StandIn()
    device = use_stand_in(monkeypatch, stand_in)
    voice, audio, warnings = speak(f32_bundle, profile(CUDA))
    assert (audio == on_cpu).all()
    assert voice.resources.placement.places == dict.fromkeys(GRAPHS, "cuda")
    assert not [note for note in warnings if "noise" not in note]
    assert device.made
    assert not voice.resources.runtime.overlap_vae
    speech = voice.say(TEXT, seed=3, max_len=2)
    assert speech.metrics.as_dict()["providers"]["flow"] == "cuda"


def test_the_flow_stays_on_the_cpu_where_the_profile_wants_it_there(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_stand_in(monkeypatch, StandIn())
    voice, audio, _ = speak(f32_bundle, profile(CUDA, place="cpu"))
    places = voice.resources.placement.places
    assert {name for name, place in places.items() if place == "cpu"} == {"flow"}
    assert (audio == on_cpu).all()


def test_a_provider_that_is_silently_missing_leaves_everything_to_the_cpu(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    use_stand_in(monkeypatch, StandIn(silent={"cuda"}))
    with caplog.at_level(logging.WARNING, "boardvoice"):
        voice, audio, warnings = speak(f32_bundle, profile(CUDA))
    assert (audio == on_cpu).all()
    assert set(voice.resources.placement.places.values()) == {"cpu"}
    notes = [note for note in warnings if "asks for cuda" in note]
    assert len(notes) == 1
    assert "without it and without an error" in notes[0]
    assert [record.getMessage() for record in caplog.records].count(notes[0]) == 1


def test_wrong_numbers_are_never_heard(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_stand_in(monkeypatch, StandIn(wrong={"cuda"}))
    _, audio, warnings = speak(f32_bundle, profile(CUDA))
    assert (audio == on_cpu).all()
    assert any("wrong results" in note for note in warnings)


def test_a_graph_whose_products_stay_on_the_cpu_runs_there_altogether(
    dynamic_int8_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = StandIn(on_cpu={"DynamicQuantizeMatMul"})
    use_stand_in(monkeypatch, stand_in)
    voice, _, warnings = speak(dynamic_int8_bundle, profile(CUDA))
    places = voice.resources.placement.places
    assert {name for name, place in places.items() if place == "cpu"} == {"flow", "patch_encoder"}
    (note,) = [note for note in warnings if note.startswith("flow does not run on cuda")]
    assert "9 DynamicQuantizeMatMul" in note
    assert "int8-128" in note


def test_a_graph_that_cannot_be_loaded_there_runs_on_the_cpu(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poor(StandIn):
        def __call__(self, path, options, providers):
            if path.stem == "vae_decoder" and providers[0].name == "cuda":
                raise RuntimeError("Failed to allocate memory for requested buffer\nmore")
            return super().__call__(path, options, providers)

    use_stand_in(monkeypatch, Poor())
    voice, audio, warnings = speak(f32_bundle, profile(CUDA))
    assert voice.resources.placement.places["vae_decoder"] == "cpu"
    assert voice.resources.placement.places["lm"] == "cuda"
    assert any("vae_decoder does not run on cuda: Failed to allocate" in n for n in warnings)
    assert (audio == on_cpu).all()


def test_a_device_that_is_full_leaves_graphs_to_the_cpu(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = use_stand_in(monkeypatch, StandIn())

    def full(array: np.ndarray, provider: OrtProvider) -> object:
        if array.nbytes > 4096:
            raise RuntimeError("CUDA failure 2: out of memory ; GPU=0 ; file=cuda_allocator.cc")
        return device(array, provider)

    monkeypatch.setattr(device_graph, "device_array", full)
    voice, audio, warnings = speak(f32_bundle, profile(CUDA))
    places = voice.resources.placement.places
    assert places["lm"] == "cpu"
    assert places["flow"] == "cuda"
    assert any("lm does not run on cuda" in n and "out of memory" in n for n in warnings)
    assert (audio == on_cpu).all()


def test_the_lm_stays_on_the_cpu_where_attention_is_wrong(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_stand_in(monkeypatch, StandIn(on_cpu={"GroupQueryAttention"}))
    voice, audio, warnings = speak(f32_bundle, profile(CUDA))
    places = voice.resources.placement.places
    assert {name for name, place in places.items() if place == "cpu"} == {"lm"}
    assert any("asks for the LM on cuda" in note for note in warnings)
    assert (audio == on_cpu).all()


def test_runs_of_fixed_shape_are_captured_and_prefixes_are_not(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = StandIn()
    use_stand_in(monkeypatch, stand_in)
    graphs = CudaProvider(name="cuda", cuda_graph=True)
    voice, audio, _ = speak(f32_bundle, profile(graphs))
    assert (audio == on_cpu).all()
    stand_in.runs.clear()
    voice.say(TEXT, seed=3, max_len=6)
    by_graph = {name: [c for n, c in stand_in.runs if n == name] for name, _ in stand_in.runs}
    lm = by_graph["lm.kv_f16"]
    assert lm[0] == "-1", "the prefix"
    assert len(lm) > 2
    assert len(set(lm[1:])) == 1, "steps in one bucket are one captured run"
    for name in ("flow", "patch_encoder"):
        assert len(set(by_graph[name])) == 1
        assert "-1" not in by_graph[name]
    # The decoder's states change places.
    assert len(set(by_graph["vae_decoder"])) == 2
    del voice
    assert set(stand_in.released) >= {int(lm[1])}


def test_each_bucket_of_the_cache_is_captured_by_itself(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = KvSection(dtype="f16", bucket_rows=16)
    plain = profile(place="cpu", providers=(CPU,), kv=small)
    text = "One, two, three, four."
    expected = Voice.load(f32_bundle, profile=plain, threads=1).say(
        text, seed=3, min_len=90, max_len=90
    )
    stand_in = StandIn()
    use_stand_in(monkeypatch, stand_in)
    graphs = CudaProvider(name="cuda", cuda_graph=True)
    voice = Voice.load(f32_bundle, profile=profile(graphs, kv=small), threads=1)
    stand_in.runs.clear()
    speech = voice.say(text, seed=3, min_len=90, max_len=90)
    assert (speech.audio == expected.audio).all()
    captured = {c for name, c in stand_in.runs if name == "lm.kv_f16"} - {"-1"}
    assert len(captured) > 1


def test_a_session_that_cannot_be_captured_runs_without(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_stand_in(monkeypatch, StandIn(no_capture=True))
    graphs = CudaProvider(name="cuda", cuda_graph=True)
    voice, audio, warnings = speak(f32_bundle, profile(graphs))
    assert set(voice.resources.placement.places.values()) == {"cuda"}
    assert any("flow runs on cuda without CUDA graphs" in note for note in warnings)
    assert (audio == on_cpu).all()


def test_the_flow_is_built_by_tensorrt_once_with_every_shape(
    f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path))
    stand_in, builds = StandIn(), Builds()
    use_stand_in(monkeypatch, stand_in, builds)
    board = profile(CUDA, TENSORRT, place="tensorrt")
    voice, audio, warnings = speak(f32_bundle, board)
    places = voice.resources.placement.places
    assert places.pop("flow") == "tensorrt"
    assert set(places.values()) == {"cuda"}
    assert np.abs(audio - on_cpu).max() < 1e-3, "other operators, the same numbers"
    assert not [note for note in warnings if "noise" not in note]
    (chain,) = builds.of("flow.portable.onnx")
    assert {name for name, _ in builds.asked} == {"flow.portable.onnx", "micro_layers.onnx"}
    assert [one.name for one in chain] == ["tensorrt", "cuda"]
    options = chain[0].options
    hidden = voice.manifest.model["flow"]["hidden"]
    assert options["trt_profile_min_shapes"] == f"mu:1x2x{hidden}"
    assert options["trt_profile_opt_shapes"] == f"mu:2x2x{hidden}"
    assert options["trt_profile_max_shapes"] == f"mu:2x2x{hidden}"
    assert options["trt_fp16_enable"] == "1"
    folder = Path(options["trt_engine_cache_path"])
    assert folder.parent == tmp_path / "engines"
    assert options["trt_timing_cache_path"] == str(folder)
    # The session that runs it has the same options, so that it finds the engine.
    assert [p[0].options for name, p in stand_in.opened if name == "flow.portable.onnx"] == [
        options
    ]
    speak(f32_bundle, board)
    assert len(builds.asked) == 2, "nothing is built twice"
    coarse = TensorRtProvider(name="tensorrt", builder_level=1)
    speak(f32_bundle, profile(CUDA, coarse, place="tensorrt"))
    assert len(builds.of("flow.portable.onnx")) == 2


def test_what_tensorrt_leaves_to_cuda_is_told(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path))

    class Second(StandIn):
        def __call__(self, path, options, providers):
            self.on_second = {"Softmax", "MatMul"} if path.stem == "flow.portable" else set()
            return super().__call__(path, options, providers)

    use_stand_in(monkeypatch, Second())
    voice, _, warnings = speak(f32_bundle, profile(CUDA, TENSORRT, place="tensorrt"))
    assert voice.resources.placement.places["flow"] == "tensorrt"
    (note,) = [note for note in warnings if "in part" in note]
    assert note.startswith("flow runs on tensorrt in part: cuda has ")
    assert "MatMul of it" in note
    assert "Softmax" not in note, "only what costs something"


@pytest.mark.parametrize("error", [BackendError("the process that builds its engine was killed")])
def test_an_engine_that_cannot_be_built_is_made_up_for_by_the_next_provider(
    error: Exception, f32_bundle: Path, on_cpu: np.ndarray, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path))
    builds = Builds(error)
    use_stand_in(monkeypatch, StandIn(), builds)
    board = profile(CUDA, TENSORRT, place="tensorrt")
    voice, audio, warnings = speak(f32_bundle, board)
    assert voice.resources.placement.places["flow"] == "cuda"
    assert any("flow does not run on tensorrt" in n and "killed" in n for n in warnings)
    assert (audio == on_cpu).all()
    # What a killed build left counts for nothing.
    builds.error = None
    voice, _, _ = speak(f32_bundle, board)
    assert voice.resources.placement.places["flow"] == "tensorrt"


def test_an_engine_is_not_built_without_room(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path))
    builds = Builds()
    use_stand_in(monkeypatch, StandIn(), builds)
    board = profile(CUDA, TensorRtProvider(name="tensorrt", workspace_mib=1 << 22),
                    place="tensorrt")  # fmt: skip
    voice, _, warnings = speak(f32_bundle, board)
    assert not builds.of("flow.portable.onnx")
    assert voice.resources.placement.places["flow"] == "cuda"
    assert any("Building TensorRT's engine of flow needs" in note for note in warnings)


def test_versions_that_are_too_old_are_refused_or_leave_the_gpu_alone(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = profile(place="cpu", requires=RequiresSection(onnxruntime="99.1"))
    with pytest.raises(ProfileError, match=r"needs ONNX Runtime 99\.1 or newer, this is 1"):
        Voice.load(f32_bundle, profile=future)
    board = profile(CUDA)
    passed = [ProviderCheck(name, name) for name in ("cuda", "cpu")]
    plan = plan_placement(board, passed, [Shortfall("l4t", "36.4", "35.6")])
    assert plan.only_cpu
    assert "Jetson Linux 36.4 or newer, this is 35.6" in plan.notes[0]
    assert "JetPack" in plan.notes[0]


def test_an_npu_with_an_old_driver_is_not_tried() -> None:
    rock = load_profile("rock-5b")
    passed = [ProviderCheck("cpu", "CPUExecutionProvider")]
    plan = plan_placement(rock, passed, [Shortfall("rknpu_driver", "0.9.6", "0.8.2")])
    assert "this is 0.8.2" in plan.notes[0]
    assert plan.npu is None
    assert plan_placement(rock, passed).npu == "rknn"


def test_golden_vectors_are_replayed_where_the_graphs_run(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_stand_in(monkeypatch, StandIn())
    options = LoadOptions(profile=profile(CUDA), threads=1)
    outcome = selftest(*open_device(f32_bundle, options))
    assert outcome.passed
    assert {result.provider for result in outcome.results} == {"CUDAExecutionProvider"}


def test_prepare_builds_engines_ahead(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ntitle: Mine\nextends: jetson-orin-nx-8gb\nrequires: {l4t: null}\n"
        "memory: {reserve_mib: 0, prepare_from_mib: 0}\n"
    )
    stand_in, builds = StandIn(), Builds()
    use_stand_in(monkeypatch, stand_in, builds)
    command = ["prepare", str(f32_bundle), "--profile", str(file), "--json"]
    assert main(command) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["notes"] == []
    assert Path(outcome["engines"]["flow"], "engine.done").is_file()
    voice = Voice.load(f32_bundle, profile=str(file), threads=1)
    assert voice.resources.placement.places["flow"] == "tensorrt"
    assert len(builds.of("flow.portable.onnx")) == 1
    use_stand_in(monkeypatch, StandIn(silent={"tensorrt"}), builds)
    assert main(command) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["engines"] == {}
    assert "asks for tensorrt" in outcome["notes"][0]


def test_golden_vectors_pass_where_the_flow_is_in_standard_operators(
    dynamic_int8_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path))
    use_stand_in(monkeypatch, StandIn())
    options = LoadOptions(profile=profile(CUDA, TENSORRT, place="tensorrt"), threads=1)
    outcome = selftest(*open_device(dynamic_int8_bundle, options))
    flow = next(result for result in outcome.results if result.graph == "flow")
    assert flow.provider == "TensorrtExecutionProvider"
    assert outcome.passed, outcome.failed
