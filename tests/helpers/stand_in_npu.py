"""A module that passes for rknn-toolkit-lite2, on a made-up NPU that computes with the CPU's graph.

What it checks and what it does not is as in the real package, 2.5.0 (docs/npu_lite_qemu.md).
"""

from __future__ import annotations

import functools
import json
import shutil
import struct
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from edge_runtime import loader
from edge_runtime.bundle import MANIFEST, Bundle, BundleFile, manifest_text, sha256_of
from edge_runtime.npu.open_runner import open_npu

MARK = "0123456789abcdef" * 4
FORM = {"x_scale": 1.0, "prefix_scale": 2.0**-6}


def rknn_file(version: str = "2.5.0", target: str = "rk3588", mark: str = MARK) -> bytes:
    """A file with the metadata of a real one, and nothing to compute."""
    text = json.dumps({"version": version, "target_platform": [target]}).encode()
    body = mark.encode() + bytes(300)
    header = b"RKNN" + bytes(4) + struct.pack("<QQ", 6, len(body))
    return header.ljust(64, b"\0") + body + struct.pack("<Q", len(text)) + text


def librknnrt(version: str = "2.5.0") -> bytes:
    return b"\x7fELF" + bytes(500) + f"librknnrt version: {version} (a@2025)".encode() + bytes(99)


def add_npu_model(
    source: Path, folder: Path, model: bytes | None = None, *, copy: bool = True, **changes: Any
) -> Path:
    """A copy of a bundle that has a model for the NPU; or the bundle itself, moved."""
    if copy:
        shutil.copytree(source, folder)
    else:
        source.rename(folder)
    bundle = Bundle.open(folder, verify=False)
    spec = bundle.manifest.model
    name = "npu/flow.rk3588.fp16.rknn"
    entry = {
        "model": name, "target": "rk3588", "toolkit": "2.5.0", "source_sha256": MARK,
        "patch_size": spec["patch_size"], "latent_dim": spec["latent_dim"],
        "hidden": spec["flow"]["hidden"], "cycles": 18_480_000, "memory_bytes": 5 << 20,
        **FORM, **changes,
    }  # fmt: skip
    (folder / "npu").mkdir()
    (folder / name).write_bytes(rknn_file() if model is None else model)
    (folder / "npu/flow.json").write_text(json.dumps(entry))
    files = dict(bundle.manifest.files)
    for added in (name, "npu/flow.json"):
        path = folder / added
        files[added] = BundleFile(size=path.stat().st_size, sha256=sha256_of(path))
    manifest = bundle.manifest.model_copy(update={"files": files})
    (folder / MANIFEST).write_text(manifest_text(manifest))
    return folder


def npu_root(folder: Path, library: str = "2.5.0", driver: str = "0.9.8") -> Path:
    """A board's files: driver and library."""
    for name, data in (
        ("usr/lib/librknnrt.so", librknnrt(library) if library else b""),
        ("sys/kernel/debug/rknpu/version", f"RKNPU driver: v{driver}".encode() if driver else b""),
    ):
        if data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    return folder


@dataclass
class StandInNpu:
    """The NPU behind the package.

    Attributes:
        graph: The bundle's ``flow.onnx``.
        fault: ``load``, ``init``, ``core``, ``symbols``, ``set``, ``run``, ``get``, ``nan``,
            ``big``, ``zeros``, ``shape``, ``hang``, ``wrong``; empty for none.
        from_run: Runs are faulty from this one on, counted from 1.
        half: Whether results are rounded to f16.
        version: Of librknnrt.
        driver: Of the driver.
        before_run: Called in every run.
        runs: Runs so far.
        log: What was called.
    """

    graph: Path
    fault: str = ""
    from_run: int = 1
    half: bool = True
    version: str = "2.5.0"
    driver: str = "0.9.8"
    before_run: Callable[[], None] = lambda: None
    runs: int = 0
    log: list[str] = field(default_factory=list)
    never: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._busy = threading.Lock()

    @functools.cached_property
    def session(self) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        return ort.InferenceSession(str(self.graph), options, providers=["CPUExecutionProvider"])

    def has(self, fault: str) -> bool:
        return self.fault == fault and self.runs >= self.from_run

    def compute(self, x: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        assert self._busy.acquire(blocking=False), "two runs at once in one context"
        try:
            self.before_run()
            rows = prefix.transpose(0, 2, 1) / np.float32(FORM["prefix_scale"])
            feeds = {
                "x": x[:1].transpose(0, 2, 1) / np.float32(FORM["x_scale"]), "mu": rows[:, :2],
                "time_token": rows[:1, 2:3], "cond_tokens": rows[:1, 3:],
            }  # fmt: skip
            feeds = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
            velocity = self.session.run(["velocity"], feeds)[0].transpose(0, 2, 1)
        finally:
            self._busy.release()
        if self.half:
            velocity = velocity.astype(np.float16).astype(np.float32)
        if self.has("nan"):
            velocity[0, 0, 0] = np.nan
        if self.has("big"):
            velocity[0, 0, 0] = 65504
        if self.has("zeros"):
            velocity[:] = 0
        if self.has("wrong"):
            velocity += 0.5
        return np.ascontiguousarray(velocity)

    def lite_class(self) -> type:
        npu = self

        class Runtime:
            def __init__(self) -> None:
                self.outputs: Any = None
                self.inputs: Any = None

            def run(self, get_frame_id: bool = False) -> int:
                if npu.has("hang"):
                    npu.never.wait()
                if npu.has("run"):
                    return -1
                self.outputs = [npu.compute(*self.inputs)]
                return 0

        class Lite:
            NPU_CORE_AUTO, NPU_CORE_0, NPU_CORE_1, NPU_CORE_2 = 0, 1, 2, 4
            NPU_CORE_0_1, NPU_CORE_0_1_2, NPU_CORE_ALL = 3, 7, 0xFFFF

            def __init__(self, verbose: bool = False, verbose_file: Any = None) -> None:
                npu.log.append("new")
                self.rknn_data: bytes | None = None
                self.rknn_runtime: Any = None
                self._made = False

            def load_rknn(self, path: str) -> int:
                if npu.fault == "load":
                    return -1
                self.rknn_data = Path(path).read_bytes()
                return 0

            def init_runtime(self, core_mask: int = 0) -> int:
                npu.log.append(f"init {core_mask}")
                # It does that in a container without the NPU's device.
                print("!!! some necessary files are missing")
                self.rknn_runtime = Runtime()
                if npu.fault == "symbols":
                    raise AttributeError("librknnrt.so: undefined symbol: rknn_set_input_shapes")
                if npu.fault == "init":
                    return -1
                self._made = True
                return -1 if npu.fault == "core" else 0

            def inference(self, inputs: list[np.ndarray]) -> Any:
                assert self.rknn_data is None, "the file's copy is still held"
                if not self._made:
                    return None
                npu.runs += 1
                if npu.has("set"):
                    return None
                self.rknn_runtime.inputs = inputs
                # Its code is ignored, and what the run before left is returned.
                self.rknn_runtime.run(False)
                outputs = self.rknn_runtime.outputs
                if npu.has("get"):
                    return None
                if outputs is None:
                    outputs = [np.zeros_like(inputs[0])]
                return [outputs[0][:1]] if npu.has("shape") else outputs

            def get_sdk_version(self) -> str | None:
                if not self._made:
                    return None
                line = "=" * 46
                return (
                    f"{line}\nRKNN VERSION:\n  API: {npu.version} (a@2026)\n  DRV: {npu.driver}\n"
                    f"{line}\n"
                )

            def release(self) -> None:
                npu.log.append("release")
                self._made, self.rknn_runtime = False, None

        return Lite

    def install(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        """Put it in place of the package, on a board with these files."""
        api = types.ModuleType("rknnlite.api")
        api.RKNNLite = self.lite_class()  # type: ignore[attr-defined]
        package = types.ModuleType("rknnlite")
        package.api = api  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "rknnlite", package)
        monkeypatch.setitem(sys.modules, "rknnlite.api", api)
        monkeypatch.setattr(loader, "open_npu", functools.partial(open_npu, root=root))
