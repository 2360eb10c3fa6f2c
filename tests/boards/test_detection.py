"""Trees made from public dumps of real boards; each has a SOURCE. See tests/boards/trees."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from device_profiles.catalog import find_profile
from device_profiles.detect import BoardFacts, detect

TREES = Path(__file__).parent / "trees"
EXPECTED = {
    "aaeon-boxer-8654ai": "jetson-orin-nano-8gb-super",
    "docker-jetson-orin-8gb": "jetson-orin-nano-8gb",
    "docker-raspberry-pi-5": "raspberry-pi-5",
    "docker-rk3588": "rk3588-generic",
    "jetson-agx-orin-32gb": "jetson-agx-orin-32gb",
    "jetson-agx-orin-64gb": "jetson-agx-orin-64gb",
    "jetson-agx-orin-jetpack7": "jetson-agx-orin-32gb",
    "jetson-agx-xavier": "jetson-agx-xavier",
    "jetson-orin-nano-8gb-jetpack5": "jetson-orin-nano-8gb",
    "jetson-orin-nano-8gb-super": "jetson-orin-nano-8gb-super",
    "jetson-orin-nx-16gb": "jetson-orin-nx-16gb",
    "jetson-thor": "jetson-thor",
    "jetson-xavier-nx-jetpack4": "jetson-xavier-nx",
    "jetson-xavier-nx-jetpack5": "jetson-xavier-nx",
    "khadas-edge2-vendor": "khadas-edge2",
    "kubernetes-x86-vnni": "x86-vnni",
    "luckfox-omni3576": "rk3576-generic",
    "nanopc-t6": "nanopc-t6",
    "odroid-m2": "rk3588-generic",
    "orange-pi-3b-vendor": "rk3566-generic",
    "orange-pi-5-mainline": "orange-pi-5",
    "orange-pi-5-max-vendor": "orange-pi-5-max",
    "orange-pi-5-plus": "orange-pi-5-plus",
    "orange-pi-5-pro-vendor": "orange-pi-5-pro",
    "orange-pi-5-vendor": "orange-pi-5",
    "radxa-e52c": "rk3582-generic",
    "radxa-zero-3w": "rk3566-generic",
    "raspberry-pi-4": "generic-aarch64",
    "raspberry-pi-5": "raspberry-pi-5",
    "raspberry-pi-cm5": "raspberry-pi-5",
    "rock-4d": "rk3576-generic",
    "rock-5a-vendor": "rock-5a",
    "rock-5b-vendor": "rock-5b",
    "rock-5c-lite-vendor": "rock-5c-lite",
    "rock-5c-vendor": "rock-5c",
    "turing-rk1": "turing-rk1",
    "x86-celeron-j1900": "generic-x86-64",
    "x86-core-i7-7820x": "x86-avx512",
    "x86-core-ultra-268v": "x86-vnni",
    "x86-ryzen-3800x": "x86-avx2",
    "x86-xeon-8488c": "x86-amx",
    "x86-zen4": "x86-vnni",
}


def facts_of(tree: str) -> BoardFacts:
    return detect(TREES / tree, machine=machine_of(tree))


def machine_of(tree: str) -> str:
    return "x86_64" if "x86" in tree else "aarch64"


def test_every_tree_has_an_expectation_and_a_public_source() -> None:
    trees = {folder.name for folder in TREES.iterdir()}
    assert trees == set(EXPECTED)
    for tree in trees:
        assert "https://" in (TREES / tree / "SOURCE").read_text("utf-8")


@pytest.mark.parametrize("tree", sorted(EXPECTED))
def test_the_board_is_recognized_and_the_reason_names_where_it_was_read(tree: str) -> None:
    found = find_profile(machine=machine_of(tree), root=TREES / tree)
    assert found.profile.name == EXPECTED[tree]
    assert "/" in found.reasons[0] or "uname" in found.reasons[0]
    assert str(TREES) not in " ".join(found.reasons)


@pytest.mark.parametrize(
    ("tree", "soc"),
    [
        ("radxa-e52c", "rk3582"), ("orange-pi-5-mainline", "rk3588"), ("rock-4d", "rk3576"),
        ("radxa-zero-3w", "rk3566"), ("jetson-agx-xavier", "tegra194"), ("raspberry-pi-4", ""),
        ("raspberry-pi-5", "bcm2712"), ("rock-5c-lite-vendor", "rk3582"), ("docker-rk3588", ""),
        ("docker-jetson-orin-8gb", "tegra234"),
    ],
)  # fmt: skip
def test_the_chip_is_the_first_one_named_unless_cpus_are_missing(tree: str, soc: str) -> None:
    assert facts_of(tree).soc == soc


@pytest.mark.parametrize(
    ("tree", "version"),
    [
        ("jetson-orin-nano-8gb-jetpack5", "35.3.1"), ("jetson-thor", "38.2.0"),
        ("jetson-agx-orin-jetpack7", "39.2.0"), ("docker-jetson-orin-8gb", "36.2.0"),
        ("jetson-agx-orin-64gb", ""),
    ],
)  # fmt: skip
def test_the_release_of_jetson_linux_is_read(tree: str, version: str) -> None:
    assert facts_of(tree).l4t == version


def test_without_the_release_file_the_package_says_which_jetson_linux_it_is(tmp_path: Path) -> None:
    shutil.copytree(TREES / "jetson-agx-orin-64gb", tmp_path, dirs_exist_ok=True)
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: base-files\nVersion: 12ubuntu4\n\nPackage: nvidia-l4t-core\n"
        "Status: install ok installed\nVersion: 36.4.3-20250107174145\n\n"
        "Package: z\nVersion: 9.9.9\n"
    )
    facts = detect(tmp_path, machine="aarch64")
    assert (facts.l4t, facts.l4t_source) == ("36.4.3", "/var/lib/dpkg/status")


@pytest.mark.parametrize(
    ("tree", "modules"),
    [
        ("jetson-agx-orin-jetpack7", ("p3701-0001", "p3737-0000", "p3701-0000")),
        ("jetson-orin-nano-8gb-super", ("p3768-0000", "p3767-0005-super", "p3767-0005")),
    ],
)
def test_the_part_number_goes_before_the_names_of_the_tree(
    tree: str, modules: tuple[str, ...]
) -> None:
    assert facts_of(tree).tree.modules() == modules


@pytest.mark.parametrize(
    ("tree", "big"),
    [
        ("orange-pi-5-vendor", (4, 5, 6, 7)), ("rock-5c-lite-vendor", (4, 5)),
        ("orange-pi-5-max-vendor", (4, 5, 6, 7)), ("raspberry-pi-5", ()), ("x86-zen4", ()),
    ],
)  # fmt: skip
def test_the_big_cores_are_found(tree: str, big: tuple[int, ...]) -> None:
    assert facts_of(tree).big == big


@pytest.mark.parametrize(
    ("tree", "driver", "version"),
    [
        ("orange-pi-5-vendor", "rknpu", "0.9.8"), ("rock-5b-vendor", "rknpu", "0.9.6"),
        ("orange-pi-5-mainline", "rocket", ""), ("rock-5a-vendor", "", ""),
    ],
)  # fmt: skip
def test_the_npu_driver_is_found(tree: str, driver: str, version: str) -> None:
    npu = facts_of(tree).npu
    assert (npu.driver, npu.version) == (driver, version)


@pytest.mark.parametrize(
    ("tree", "kind", "quota"),
    [
        ("docker-rk3588", "docker", 2.0), ("kubernetes-x86-vnni", "kubernetes", 1.5),
        ("orange-pi-5-plus", "", None),
    ],
)  # fmt: skip
def test_containers_and_their_quotas_are_seen(tree: str, kind: str, quota: float | None) -> None:
    facts = facts_of(tree)
    assert (facts.container, facts.quota) == (kind, quota)


@pytest.mark.parametrize("tree", sorted(EXPECTED))
def test_every_fact_says_where_it_was_looked_for(tree: str) -> None:
    facts = facts_of(tree).facts()
    assert all(fact.source and str(TREES) not in fact.source for fact in facts)
    assert len({fact.name for fact in facts}) == len(facts)


def test_a_part_number_decides_against_the_tree(tmp_path: Path) -> None:
    shutil.copytree(TREES / "jetson-orin-nx-16gb", tmp_path, dirs_exist_ok=True)
    chosen = tmp_path / "proc/device-tree/chosen"
    chosen.mkdir()
    (chosen / "ids").write_bytes(b"3767-0001-300 3768-0000-300\0")
    assert find_profile(machine="aarch64", root=tmp_path).profile.name == "jetson-orin-nx-8gb"


def test_files_that_cannot_be_read_are_no_facts(tmp_path: Path) -> None:
    (tmp_path / "proc/cpuinfo").mkdir(parents=True)
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/model").write_bytes(b"\xff\xfe\0\0")
    (tmp_path / "proc/meminfo").write_bytes(b"MemTotal: many kB\n\xff")
    facts = detect(tmp_path, machine="aarch64")
    assert (facts.memory_mib, facts.cpu.present, facts.soc) == (0, 0, "")
    assert find_profile(machine="aarch64", root=tmp_path).profile.name == "generic-aarch64"
