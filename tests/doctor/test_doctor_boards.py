"""What the doctor says of boards, from trees of files."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.jetpack import jetpack_of
from edge_runtime.doctor.memory_checks import check_memory, check_swap
from edge_runtime.doctor.npu_checks import check_npu
from edge_runtime.doctor.ort_checks import check_ort, check_providers_built
from edge_runtime.doctor.ort_install import OrtInstall
from edge_runtime.doctor.power_checks import check_power
from edge_runtime.doctor.python_checks import check_python
from edge_runtime.doctor.report import examine
from edge_runtime.doctor.scene import Scene
from edge_runtime.npu.rknn_file import toolkit_version

TREES = Path(__file__).parents[1] / "boards" / "trees"
CPU_BUILD = OrtInstall(
    "1.23.0", ("CPUExecutionProvider",), (("onnxruntime", "1.23.0"),), file="/ort/__init__.py"
)
GPU = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")


def gpu_build(cuda: str, cudnn: str = "", version: str = "1.23.0") -> OrtInstall:
    packages = (("onnxruntime-gpu", version),)
    return OrtInstall(version, GPU, packages, cuda, cudnn, file="/ort/__init__.py")


@pytest.fixture(autouse=True)
def no_profiles_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BOARDVOICE_PROFILE", raising=False)


@pytest.fixture
def tree(tmp_path: Path):
    """``tree(name, files, without)``: a board's tree with further files, or without some."""

    def make(name: str, files: dict[str, str | bytes] | None = None, without: str = "") -> Path:
        root = shutil.copytree(TREES / name, tmp_path / "root")
        for path, content in (files or {}).items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        if without:
            (root / without).unlink()
        return root

    return make


def scene(root: Path, ort: OrtInstall = CPU_BUILD, bundle: Path | None = None, **more) -> Scene:
    machine = "x86_64" if "x86" in str(more.pop("kind", "")) else "aarch64"
    return Scene.of(bundle, root=root, machine=machine, ort=ort, state=root / "state", **more)


def one(findings: list[Finding], check: str) -> Finding:
    found = [finding for finding in findings if finding.check == check]
    assert len(found) == 1, findings
    return found[0]


def orin(**files: str) -> dict[str, str]:
    return {
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic",
        "usr/lib/aarch64-linux-gnu/libcudnn.so.9.3.0": "",
        **files,
    }


def test_a_cpu_build_on_an_orin_is_told_with_the_index_to_take(tree) -> None:
    here = scene(tree("jetson-orin-nano-8gb-super", orin()))
    findings = check_providers_built(here)
    assert one(findings, "providers").status == "warn"
    assert "no cuda and no tensorrt" in one(findings, "providers").finding
    jetpack = one(findings, "JetPack")
    assert jetpack.status == "warn"
    assert "CPU build" in jetpack.finding
    assert "jp6/cu126" in jetpack.remedy
    assert jetpack.evidence == "/etc/nv_tegra_release"


@pytest.mark.parametrize(
    ("ort", "words"),
    [
        (gpu_build("13.0", "9.10"), "built for CUDA 13.0"),
        (gpu_build("12.6", "8.9"), "built for cuDNN 8.9"),
    ],
)
def test_a_build_for_other_libraries_on_an_orin_is_told(tree, ort, words: str) -> None:
    found = check_providers_built(scene(tree("jetson-orin-nano-8gb-super", orin()), ort))
    assert one(found, "providers").status == "ok"
    assert one(found, "JetPack").status == "warn"
    assert words in one(found, "JetPack").finding


def test_the_right_build_on_an_orin_is_fine(tree) -> None:
    here = scene(tree("jetson-orin-nano-8gb-super", orin()), gpu_build("12.6", "9.3"))
    assert {finding.status for finding in check_providers_built(here)} == {"ok"}


def test_a_cudnn_of_another_release_is_seen_in_the_tree(tree) -> None:
    files = orin(**{"usr/lib/aarch64-linux-gnu/libcudnn.so.8.6.0": ""})
    del files["usr/lib/aarch64-linux-gnu/libcudnn.so.9.3.0"]
    found = check_providers_built(
        scene(tree("jetson-orin-nano-8gb-super", files), gpu_build("12.6"))
    )
    assert "libcudnn.so.9 is not there, but version 8" in one(found, "JetPack").finding


def test_jetpack_5_has_no_build_for_this_python(tree) -> None:
    found = check_providers_built(scene(tree("jetson-xavier-nx-jetpack5")))
    jetpack = [finding for finding in found if finding.check == "JetPack"]
    assert [finding.status for finding in jetpack] in (["ok"], ["warn"])
    assert jetpack_of("35.4.1") is not None
    assert "Python 3.8" in jetpack_of("35.4.1").advice


@pytest.mark.parametrize(
    ("l4t", "name"),
    [
        ("32.7.4", "4"), ("35.4.1", "5"), ("36.3.0", "6.0"), ("36.4.3", "6.1 or 6.2"),
        ("38.2", "7.0 or 7.1"), ("39.0", "7.2"), ("50.1", None), ("", None),
    ],
)  # fmt: skip
def test_releases_of_jetson_linux_are_known(l4t: str, name: str | None) -> None:
    found = jetpack_of(l4t)
    assert (found.name if found else None) == name


def test_a_container_on_a_jetson_that_hides_the_release_says_so(tree) -> None:
    root = tree("docker-jetson-orin-8gb", without="etc/nv_tegra_release")
    found = one(check_providers_built(scene(root)), "JetPack")
    assert found.status == "warn"
    assert "mount /etc/nv_tegra_release" in found.remedy


def test_two_builds_over_each_other_are_told(tree) -> None:
    both = OrtInstall(
        "1.23.0", GPU, (("onnxruntime", "1.23.0"), ("onnxruntime-gpu", "1.22.0")), file="/ort"
    )
    found = one(check_ort(scene(tree("orange-pi-5-vendor"), both)), "ONNX Runtime's packages")
    assert found.status == "warn"
    assert "pip uninstall onnxruntime onnxruntime-gpu" in found.remedy


@pytest.mark.parametrize(
    "broken",
    [
        OrtInstall(error="libcudnn.so.8: cannot open shared object file"),
        OrtInstall("1.19.2", ("CPUExecutionProvider",)),
    ],
)
def test_an_onnxruntime_that_cannot_serve_is_a_failure(tree, broken: OrtInstall) -> None:
    here = scene(tree("jetson-orin-nano-8gb-super", orin()), broken)
    found = one(check_ort(here), "ONNX Runtime")
    assert found.status == "fail"
    assert (broken.error or "1.19.2") in found.finding
    assert found.remedy


def rknnrt(version: str) -> bytes:
    return b"\x7fELF" + bytes(5000) + f"librknnrt version: {version} (a@2025)".encode() + bytes(99)


def test_an_old_npu_driver_and_a_missing_library_are_told(tree) -> None:
    root = tree("orange-pi-5-vendor", {"sys/kernel/debug/rknpu/version": "RKNPU driver: v0.8.2"})
    findings = check_npu(scene(root))
    driver = one(findings, "NPU driver")
    assert (driver.status, driver.evidence) == ("warn", "/sys/kernel/debug/rknpu/version")
    assert "0.8.2, needed is 0.9.6" in driver.finding
    assert one(findings, "librknnrt").finding == "it is not installed"


@pytest.mark.parametrize(
    ("version", "status"), [("1.5.2", "warn"), ("2.5.0", "ok"), ("2.10.1", "ok")]
)
def test_the_librarys_version_is_read_from_the_library(tree, version: str, status: str) -> None:
    root = tree("orange-pi-5-vendor", {"usr/lib/librknnrt.so": rknnrt(version)})
    found = one(check_npu(scene(root)), "librknnrt")
    assert found.status == status
    assert version in found.finding


def test_a_library_that_is_torn_is_told(tree) -> None:
    root = tree("orange-pi-5-vendor", {"usr/lib/librknnrt.so": b""})
    assert one(check_npu(scene(root)), "librknnrt").status == "warn"


def rknn_model(version: str) -> bytes:
    text = json.dumps({"version": version, "target_platform": ["rk3588"]}).encode()
    body = bytes(300)
    header = b"RKNN" + bytes(4) + struct.pack("<QQ", 6, len(body))
    return header.ljust(64, b"\0") + body + struct.pack("<Q", len(text)) + text


def test_a_model_of_a_newer_toolkit_than_the_library_is_told(tree, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "flow.rknn").write_bytes(rknn_model("2.6.1"))
    root = tree("orange-pi-5-vendor", {"usr/lib/librknnrt.so": rknnrt("2.5.0")})
    found = one(check_npu(scene(root, bundle=bundle)), "NPU model")
    assert "toolkit 2.6.1, librknnrt is 2.5.0" in found.finding
    (bundle / "flow.rknn").write_bytes(rknn_model("2.6.1")[:200])
    assert toolkit_version(bundle / "flow.rknn") == ""


def test_mainlines_driver_is_told(tree) -> None:
    root = tree("orange-pi-5-mainline", {"sys/module/rocket/initstate": "live"})
    shutil.rmtree(root / "sys/kernel", ignore_errors=True)
    assert "rocket" in one(check_npu(scene(root)), "NPU driver").finding


def test_a_container_without_the_npus_device_is_told(tree) -> None:
    assert one(check_npu(scene(tree("docker-rk3588"))), "NPU device").status == "warn"


def test_power_modes_and_governors(tree) -> None:
    cpus = "sys/devices/system/cpu"
    root = tree(
        "jetson-orin-nano-8gb-super",
        orin(
            **{
                "var/lib/nvpmodel/status": "pmode:0001 fmode:quiet",
                "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=1 NAME=7W >\n"
                "< POWER_MODEL ID=2 NAME=MAXN_SUPER >",
                f"{cpus}/cpufreq/policy0/scaling_governor": "powersave",
                f"{cpus}/cpufreq/policy0/scaling_max_freq": "960000",
                f"{cpus}/cpufreq/policy0/cpuinfo_max_freq": "1728000",
                f"{cpus}/present": "0-5",
                f"{cpus}/online": "0-3",
                "sys/class/thermal/thermal_zone0/temp": "91500",
                "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
            }
        ),
    )
    findings = check_power(scene(root))
    mode = one(findings, "power mode")
    assert (mode.finding, mode.status) == ("7W", "warn")
    assert "nvpmodel -m 2" in mode.remedy
    assert one(findings, "governor").status == "warn"
    assert "960 of 1728 MHz" in one(findings, "clocks").finding
    assert "4, 5 of 6" in one(findings, "CPUs").finding
    assert "cpu-thermal 92 °C" in one(findings, "heat").finding


def test_swap_on_a_card_and_zram_on_a_jetson_are_told(tree) -> None:
    head = "Filename Type Size Used Priority\n"
    root = tree(
        "jetson-orin-nano-8gb-super", orin(**{"proc/swaps": head + "/dev/zram0 partition 1 0 5"})
    )
    assert "nvzramconfig" in one(check_swap(scene(root)), "swap").remedy
    (root / "proc/swaps").write_text(head + "/dev/mmcblk0p3 partition 1 0 5")
    assert "memory card" in one(check_swap(scene(root)), "swap").finding


def test_the_limit_of_a_cgroup_is_the_memory_there_is(tree) -> None:
    root = tree(
        "docker-rk3588",
        {
            "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 7000000 kB\n",
            "proc/self/cgroup": "0::/box\n",
            "sys/fs/cgroup/box/memory.max": "20000000",
            "sys/fs/cgroup/box/memory.current": "10000000",
            "proc/self/mountinfo": "30 23 0:30 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
        },
    )
    found = one(check_memory(scene(root), None), "memory")
    assert found.status == "fail"
    assert "cgroup" in found.finding


@pytest.mark.parametrize(
    ("version", "bits", "status"),
    [((3, 9, 2), 64, "fail"), ((3, 14, 0), 64, "fail"), ((3, 12, 1), 32, "fail"),
     ((3, 10, 13), 64, "ok"), ((3, 13, 0), 64, "ok")],
)  # fmt: skip
def test_pythons_that_it_runs_on(tree, version, bits: int, status: str) -> None:
    found = check_python(scene(tree("orange-pi-5-vendor")), version, bits)
    assert one(found, "Python").status == status


def test_a_container_that_hides_its_board_asks_for_a_profile(tree) -> None:
    found = examine(scene(tree("docker-rk3588")))
    profile = one(list(found.findings), "profile")
    assert profile.status == "warn"
    assert "BOARDVOICE_PROFILE" in profile.remedy


@pytest.mark.parametrize("name", sorted(one.name for one in TREES.iterdir()))
def test_every_board_can_be_examined(name: str) -> None:
    machine = "x86_64" if "x86" in name else "aarch64"
    report = examine(Scene.of(root=TREES / name, machine=machine, ort=CPU_BUILD))
    assert report.findings
    assert json.dumps(report.as_dict())
    for finding in report.findings:
        assert finding.status != "fail" or finding.remedy
