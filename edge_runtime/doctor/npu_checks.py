"""Rockchip's NPU: driver against library against model."""

from __future__ import annotations

from pathlib import Path

from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.scene import Scene
from edge_runtime.npu.library import OLDEST_DRIVER, OLDEST_LIBRARY, library_version
from edge_runtime.npu.rknn_file import toolkit_version
from edge_runtime.requirements import older

_CPU = "until then the CPU does all the work"


def check_npu(scene: Scene) -> list[Finding]:
    """Everything that has to fit before the NPU runs a model; the CPU always can."""
    npu = scene.facts.npu
    if not scene.is_rockchip:
        return [Finding("NPU", "skipped", "the chip is not one of Rockchip's")]
    if npu.driver == "rocket":
        return [
            Finding(
                "NPU driver", "warn",
                "rocket, mainline's driver, which Rockchip's library does not work with",
                npu.source, f"Boot a vendor kernel (5.10 or 6.1); {_CPU}.",
            )
        ]  # fmt: skip
    return [_driver(scene), *_library(scene), *_container(scene)]


def _driver(scene: Scene) -> Finding:
    npu, needed = scene.facts.npu, scene.profile.requires.rknpu_driver or OLDEST_DRIVER
    if not npu.driver:
        places = "/sys/kernel/debug/rknpu, /proc/rknpu, /sys/module/rknpu, /dev/rknpu"
        remedy = f"Boot a vendor kernel with rknpu; {_CPU}."
        return Finding("NPU driver", "warn", "there is none", places, remedy)
    if not npu.version:
        return Finding(
            "NPU driver", "warn", "it is there, but only root may read its version", npu.source,
            "sudo cat /sys/kernel/debug/rknpu/version, or run doctor as root.",
        )  # fmt: skip
    if older(npu.version, needed):
        return Finding(
            "NPU driver", "warn", f"{npu.version}, needed is {needed}", npu.source,
            f"Update the board's kernel; {_CPU}.",
        )  # fmt: skip
    return Finding("NPU driver", "ok", npu.version, npu.source)


def _library(scene: Scene) -> list[Finding]:
    npu, needed = scene.facts.npu, scene.profile.requires.librknnrt or OLDEST_LIBRARY
    if not npu.library:
        return [
            Finding(
                "librknnrt", "warn", "it is not installed", "/usr/lib, /usr/local/lib",
                f"Copy librknnrt.so {needed} or newer from rknn-toolkit2 to /usr/lib; {_CPU}.",
            )
        ]  # fmt: skip
    version = library_version(scene.root / npu.library.lstrip("/"))
    if not version:
        findings = [
            Finding(
                "librknnrt", "warn", "it does not say its version", npu.library,
                "Copy it again from rknn-toolkit2; the file may be torn.",
            )
        ]  # fmt: skip
    elif older(version, needed):
        findings = [
            Finding(
                "librknnrt", "warn", f"{version}, needed is {needed}", npu.library,
                "Replace it by the one of rknn-toolkit2; an old one refuses new models with "
                "'Invalid RKNN model version 6'.",
            )
        ]  # fmt: skip
    else:
        findings = [Finding("librknnrt", "ok", version, npu.library)]
    return findings + _models(scene.bundle, version)


def _models(bundle: Path | None, library: str) -> list[Finding]:
    findings = []
    for file in sorted(bundle.rglob("*.rknn")) if bundle is not None else ():
        made = toolkit_version(file)
        if made and library and older(library, made):
            findings.append(
                Finding(
                    "NPU model", "warn",
                    f"{file.name} was made by toolkit {made}, librknnrt is {library}", str(file),
                    f"Install librknnrt {made} or newer; {_CPU}.",
                )
            )  # fmt: skip
        elif not made:
            findings.append(
                Finding(
                    "NPU model", "warn", f"{file.name} does not say which toolkit made it",
                    str(file), "Copy or convert it again.",
                )
            )  # fmt: skip
    return findings


def _container(scene: Scene) -> list[Finding]:
    if not scene.facts.container:
        return []
    needed = ("dev/dri/renderD129", "dev/dri/renderD128", "dev/rknpu")
    if any((scene.root / place).exists() for place in needed):
        return []
    return [
        Finding(
            "NPU device", "warn", f"{scene.facts.container} shows no device of the NPU",
            ", ".join(f"/{place}" for place in needed),
            "Run the container with --device /dev/dri and mount /proc/device-tree/compatible.",
        )
    ]  # fmt: skip

