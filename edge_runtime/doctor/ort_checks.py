"""ONNX Runtime: its build against the profile and against JetPack."""

from __future__ import annotations

from pathlib import Path

from edge_runtime.backends.providers import check_providers
from edge_runtime.doctor.finding import Finding, Status
from edge_runtime.doctor.jetpack import JetPack, jetpack_of
from edge_runtime.doctor.scene import Scene
from edge_runtime.loader import engine_cache
from edge_runtime.requirements import older

_CUDNN = (
    "usr/lib/aarch64-linux-gnu", "usr/lib", "usr/local/cuda/lib64", "lib/aarch64-linux-gnu",
)  # fmt: skip
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}


def check_ort(scene: Scene) -> list[Finding]:
    """Whether it can be imported, is new enough, and is installed once."""
    ort, needed = scene.ort, scene.profile.requires.onnxruntime
    packages = ", ".join(f"{name} {version}" for name, version in ort.packages)
    if ort.error:
        return [
            Finding(
                "ONNX Runtime", "fail", f"it cannot be imported: {ort.error}", packages,
                "A build for other versions of CUDA or cuDNN misses their libraries: uninstall "
                "every onnxruntime package and install the one that belongs to this board.",
            )
        ]  # fmt: skip
    evidence = f"{ort.file} ({packages or 'no package'})"
    if older(ort.version, needed):
        findings = [
            Finding(
                "ONNX Runtime", "fail", f"{ort.version}, needed is {needed}", evidence,
                f"pip install --upgrade 'onnxruntime>={needed}'",
            )
        ]  # fmt: skip
    else:
        findings = [Finding("ONNX Runtime", "ok", ort.version, evidence)]
    if len(ort.packages) > 1:
        findings.append(
            Finding(
                "ONNX Runtime's packages", "warn",
                f"several write to one folder, and the last one wins: {packages}", ort.file,
                f"pip uninstall {' '.join(name for name, _ in ort.packages)}, then install one.",
            )
        )  # fmt: skip
    return findings


def check_providers_built(scene: Scene) -> list[Finding]:
    """Whether the build has the providers that the profile asks for, and can work on JetPack."""
    ort, wanted = scene.ort, [entry.name for entry in scene.profile.providers]
    if ort.error:
        return [Finding("providers", "skipped", "ONNX Runtime cannot be imported")]
    jetpack = jetpack_of(scene.facts.l4t)
    missing = [
        name for name in wanted if name in _PROVIDERS and _PROVIDERS[name] not in ort.providers
    ]
    evidence = "available: " + ", ".join(ort.providers)
    if missing:
        remedy = jetpack.advice if jetpack else "Install a build of onnxruntime for this GPU."
        findings = [
            Finding(
                "providers", "warn",
                f"this build has no {' and no '.join(missing)}, so the CPU does it", evidence,
                f"Uninstall 'onnxruntime' first. {remedy}",
            )
        ]  # fmt: skip
    else:
        findings = [Finding("providers", "ok", ", ".join(wanted), evidence)]
    if scene.is_jetson:
        findings += _on_jetpack(scene, jetpack)
    return findings


def check_providers_tried(scene: Scene) -> list[Finding]:
    """Run the known answers on every provider of the profile, here and now."""
    if scene.ort.error:
        return []
    findings = []
    for check in check_providers(scene.profile, engines=engine_cache(scene.profile)):
        name, evidence = f"provider {check.name}", "a micro-model with a known answer"
        if not check.passed:
            status: Status = "fail" if check.name == "cpu" else "warn"
            findings.append(
                Finding(name, status, f"not used: {check.reason}", evidence, check.remedy)
            )
        elif check.attention:
            words = f"its numbers are right, but not for the language model: {check.attention}"
            findings.append(Finding(name, "warn", words, evidence))
        else:
            findings.append(Finding(name, "ok", "its numbers are right", evidence))
    return findings


def _on_jetpack(scene: Scene, jetpack: JetPack | None) -> list[Finding]:
    ort, l4t = scene.ort, scene.facts.l4t
    if not l4t:
        return [
            Finding(
                "JetPack", "warn", "its version is not known here", "/etc/nv_tegra_release",
                "In a container, mount /etc/nv_tegra_release.",
            )
        ]  # fmt: skip
    if jetpack is None:
        return [
            Finding(
                "JetPack", "warn", f"Jetson Linux {l4t} is not known", scene.facts.l4t_source,
                "Take the ONNX Runtime that was built for its CUDA.",
            )
        ]  # fmt: skip
    name = f"JetPack {jetpack.name} (Jetson Linux {l4t}, CUDA {jetpack.cuda})"
    if not any(provider in ort.providers for provider in _PROVIDERS.values()):
        status: Status = "ok" if not jetpack.wheel else "warn"
        return [
            Finding(
                "JetPack", status, f"{name}; this ONNX Runtime is a CPU build",
                scene.facts.l4t_source, jetpack.advice,
            )
        ]  # fmt: skip
    wrong = []
    if ort.cuda and _major(ort.cuda) != _major(jetpack.cuda):
        wrong.append(f"ONNX Runtime was built for CUDA {ort.cuda}")
    if ort.cudnn and _major(ort.cudnn) != _major(jetpack.cudnn):
        wrong.append(f"it was built for cuDNN {ort.cudnn}, JetPack has cuDNN {jetpack.cudnn}")
    found = _cudnn(scene.root)
    if found and jetpack.cudnn not in found:
        wrong.append(f"libcudnn.so.{jetpack.cudnn} is not there, but version {', '.join(found)}")
    if not found:
        wrong.append("there is no libcudnn.so")
    if wrong:
        return [
            Finding(
                "JetPack", "warn", f"{name}: {'; '.join(wrong)}; the GPU will not be used",
                f"{scene.facts.l4t_source}; {ort.file}", jetpack.advice,
            )
        ]  # fmt: skip
    return [Finding("JetPack", "ok", f"{name} fits", f"{scene.facts.l4t_source}; {ort.file}")]


def _major(version: str) -> str:
    return version.split(".", maxsplit=1)[0]


def _cudnn(root: Path) -> list[str]:
    """Major versions of cuDNN that are installed."""
    names = {
        file.name.removeprefix("libcudnn.so.").split(".")[0]
        for folder in _CUDNN
        for file in (root / folder).glob("libcudnn.so.*")
    }
    return sorted(names)
