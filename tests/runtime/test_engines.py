"""Engines are built in another process, and kept for one graph, device and way of building."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from device_profiles.flow_placement import FlowSection
from device_profiles.providers import TensorRtProvider
from edge_runtime.backends.live_session import first_line
from edge_runtime.backends.micro_model import LAYERS
from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.backends.provider_library import missing_library
from edge_runtime.backends.tensorrt_options import ShapeRange, tensorrt_options
from edge_runtime.bundle import Bundle
from edge_runtime.engines.builder import build_engine
from edge_runtime.engines.cache import EngineCache, device_words
from edge_runtime.errors import BackendError

CPU = [OrtProvider("cpu")]
FLOW = "graphs/flow.portable.onnx"
PLACE = FlowSection(place="tensorrt", graphs="portable", precision="f16")


def test_a_build_makes_the_session_in_another_process() -> None:
    build_engine(LAYERS.file, CPU, 1)


def test_what_fails_there_is_the_reason(tmp_path: Path) -> None:
    torn = tmp_path / "flow.onnx"
    torn.write_bytes(LAYERS.file.read_bytes()[:100])
    with pytest.raises(BackendError, match=r"its engine cannot be built: flow\.onnx: "):
        build_engine(torn, CPU, 1)
    with pytest.raises(BackendError, match="without it and without an error"):
        build_engine(LAYERS.file, [OrtProvider("tensorrt", "TensorrtExecutionProvider")], 1)


def test_a_build_that_is_killed_leaves_this_process_alive(tmp_path: Path) -> None:
    pipe = tmp_path / "graph.onnx"
    os.mkfifo(pipe)

    def kill() -> None:
        # It waits for somebody to write into the pipe.
        me, deadline = psutil.Process(), time.monotonic() + 60
        while not me.children() and time.monotonic() < deadline:
            time.sleep(0.05)
        for child in me.children():
            child.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(BackendError, match="killed, most likely for want of memory") as caught:
        build_engine(pipe, CPU, 1)
    killer.join()
    assert "swap" in caught.value.remedy


def test_an_engine_belongs_to_graph_device_and_options(
    f32_bundle: Path, dynamic_int8_bundle: Path, tmp_path: Path
) -> None:
    bundle, options = Bundle.open(f32_bundle), {"trt_fp16_enable": "1"}
    here = EngineCache(tmp_path, "orin 10.3")
    folders = {
        here.folder(bundle, FLOW, options),
        here.folder(bundle, FLOW, {}),
        here.folder(Bundle.open(dynamic_int8_bundle), FLOW, options),
        EngineCache(tmp_path, "orin 10.4").folder(bundle, FLOW, options),
        here.micro({}),
        here.micro(options),
    }
    assert len(folders) == 6
    assert {folder.parent for folder in folders} == {tmp_path / "engines"}
    assert here.folder(bundle, FLOW, options) in folders


def killed(folder: Path) -> None:
    (folder / "half.engine").touch()
    raise BackendError("killed")


def test_the_latest_two_engines_of_a_graph_are_kept(f32_bundle: Path, tmp_path: Path) -> None:
    bundle, cache = Bundle.open(f32_bundle), EngineCache(tmp_path, "orin")
    folders = [cache.folder(bundle, FLOW, {"level": str(level)}) for level in range(3)]
    for age, folder in enumerate(folders):
        assert not cache.is_built(folder)
        with pytest.raises(BackendError, match="killed"):
            cache.make(folder, lambda folder=folder: killed(folder))
        assert (folder / "half.engine").exists()
        assert not cache.is_built(folder), "no build has ended there"
        cache.make(folder, lambda: None)
        assert cache.is_built(folder)
        assert not (folder / "half.engine").exists()
        os.utime(folder / "engine.done", (1000 + age, 1000 + age))
    assert [folder.exists() for folder in folders] == [False, True, True]


def test_the_device_is_chip_system_and_libraries(tmp_path: Path) -> None:
    plain = device_words(tmp_path)
    library = tmp_path / "usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0"
    library.parent.mkdir(parents=True)
    library.touch()
    assert "libnvinfer.so.10.3.0" in device_words(tmp_path)
    assert "libnvinfer" not in plain
    assert "onnxruntime" in plain


def test_every_dynamic_input_needs_a_range_that_fits() -> None:
    provider = TensorRtProvider(name="tensorrt", engine_cache=False, timing_cache=False)

    def options(**ranges: ShapeRange) -> dict[str, str]:
        return tensorrt_options(provider, PLACE, LAYERS.file, ranges, Path("/cache"))

    fitting = ShapeRange((1, 8, 1), (1, 8, 6), (1, 8, 12))
    found = options(audio=fitting, other=fitting)
    assert found["trt_profile_opt_shapes"] == "audio:1x8x6"
    assert not any("cache" in key for key in found)
    with pytest.raises(BackendError, match="needs the shapes of 'audio'"):
        options()
    with pytest.raises(BackendError, match=r"'audio' is \(1, 8, None\)"):
        options(audio=ShapeRange((1, 4, 1), (1, 8, 6), (1, 8, 12)))
    with pytest.raises(BackendError, match="not in order"):
        options(audio=ShapeRange((1, 8, 7), (1, 8, 6), (1, 8, 12)))


def test_quantized_weights_need_leave_to_use_int8(
    dynamic_int8_bundle: Path, f32_bundle: Path
) -> None:
    provider = TensorRtProvider(name="tensorrt")
    shape = ShapeRange((1, 2, 64), (2, 2, 64), (2, 2, 64))
    for bundle, wanted in ((dynamic_int8_bundle, "1"), (f32_bundle, None)):
        found = tensorrt_options(provider, PLACE, bundle / FLOW, {"mu": shape}, None)
        assert found.get("trt_int8_enable") == wanted
        assert found["trt_fp16_enable"] == "1"


def test_reasons_are_for_people() -> None:
    raised = RuntimeError(
        "/onnxruntime_src/onnxruntime/python/state.cc:729 void onnxruntime::Register(const "
        "Options&) Please install TensorRT libraries.\n"
    )
    assert first_line(raised) == "Please install TensorRT libraries"
    assert first_line(ValueError("")) == "ValueError"


def test_the_missing_library_is_named(tmp_path: Path) -> None:
    assert missing_library("CPUExecutionProvider") == ""
    assert missing_library("CUDAExecutionProvider", tmp_path) == ""
    (tmp_path / "libonnxruntime_providers_cuda.so").write_bytes(b"no library")
    assert missing_library("CUDAExecutionProvider", tmp_path) == ""
