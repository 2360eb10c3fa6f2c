"""Everything that helps to judge a board from afar, in one JSON value without personal data."""

from __future__ import annotations

import datetime
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edge_runtime.backends.session_settings import SessionSettings
from edge_runtime.bench.measure import BenchPlan, run_bench
from edge_runtime.bundle import Bundle
from edge_runtime.doctor.report import Report, examine
from edge_runtime.doctor.scene import Scene
from edge_runtime.errors import BoardvoiceError
from edge_runtime.loader import LoadOptions, usable_profile
from edge_runtime.npu.flow_entry import NpuFlowEntry
from edge_runtime.npu.library import library_version
from edge_runtime.npu.rknn_file import RknnFile
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.redact import Redactor
from edge_runtime.tune.tuned import find_tuned

FORMAT = 1
_PACKAGES = (
    "boardvoice", "onnxruntime", "onnxruntime-gpu", "numpy", "onnx", "rknn-toolkit-lite2"
)  # fmt: skip
# Short: somebody waits for it.
_BENCH = BenchPlan(patches=10, runs=2, cold=False, kernels=False)


def board_report(
    scene: Scene, *, bench: bool = True, on_step: Callable[[str], None] = lambda step: None
) -> dict[str, Any]:
    """Look, try and measure.

    Args:
        scene: The board, with a bundle.
        bench: Whether to speak the benchmark's text as well.
        on_step: Told what is being done.
    """
    on_step("examining the board")
    examined = examine(scene)
    bundle = scene.bundle
    report: dict[str, Any] = {
        "format": FORMAT,
        "taken": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "versions": _versions(scene),
        "detection": {
            "facts": [
                {"name": fact.name, "value": fact.value, "source": fact.source}
                for fact in scene.facts.facts()
            ],
            "profile": scene.profile.name,
            "reasons": list(scene.found.reasons),
        },
        "doctor": examined.as_dict(),
        "npu": _npu(scene, examined),
        "bundle": None, "tune": None, "bench": None,
    }  # fmt: skip
    folders = {"STATE": scene.state, "TEMP": Path(tempfile.gettempdir())}
    if bundle is not None:
        folders["BUNDLE"] = bundle
        try:
            opened = Bundle.open(bundle, verify=False)
            report["bundle"] = {
                "name": opened.manifest.name, "family": opened.manifest.family,
                "weights": opened.manifest.weights, "made_by": opened.manifest.made_by,
                "bytes": sum(entry.size for entry in opened.manifest.files.values()),
            }  # fmt: skip
            report["tune"] = _tuned(scene, opened)
            if bench:
                on_step("measuring")
                load = LoadOptions(profile=scene.profile, verify=False)
                report["bench"] = run_bench(bundle, load, _BENCH, on_step).model_dump(mode="json")
        except BoardvoiceError as error:
            report["error"] = {"code": error.code, "message": error.message}
    cleaned: dict[str, Any] = Redactor.here(folders, scene.root).value(report)
    return cleaned


def _versions(scene: Scene) -> dict[str, str]:
    found = {"python": platform.python_version(), "kernel": scene.facts.kernel}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    npu = scene.facts.npu
    if npu.library:
        found["librknnrt"] = library_version(scene.root / npu.library.lstrip("/"))
    if npu.version:
        found["rknpu"] = npu.version
    return found


def _npu(scene: Scene, examined: Report) -> dict[str, Any] | None:
    """What there is for the NPU, and what came of the trial."""
    if not scene.is_rockchip and examined.npu is None:
        return None
    models = []
    for file in sorted(scene.bundle.rglob("*.rknn")) if scene.bundle is not None else ():
        found = RknnFile.read(file)
        models.append({
            "file": file.name, "toolkit": found.toolkit if found else "",
            "targets": list(found.targets) if found else [], "bytes": file.stat().st_size,
        })  # fmt: skip
    entry = None
    try:
        if scene.bundle is not None:
            entry = NpuFlowEntry.of(Bundle.open(scene.bundle, verify=False))
    except BoardvoiceError as error:
        models.append({"error": error.message})
    return {
        "driver": scene.facts.npu.driver,
        "models": models,
        "entry": entry.model_dump(mode="json") if entry is not None else None,
        "flow": examined.npu.as_dict() if examined.npu is not None else None,
    }


def _tuned(scene: Scene, bundle: Bundle) -> dict[str, Any] | None:
    profile = usable_profile(scene.profile)
    key = PreparationKey.of(
        bundle, kv_dtype=profile.kv.dtype, settings=SessionSettings.of(profile)
    )
    tuned = find_tuned(key, scene.state)
    return tuned.model_dump(mode="json") if tuned is not None else None
