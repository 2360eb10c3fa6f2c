"""From facts to a profile: what decides, in which order, and who may overrule it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from device_profiles.catalog import ProfileLoadError, find_profile, load_profile
from device_profiles.choose import Candidate, choose
from device_profiles.detect import BoardFacts
from device_profiles.hardware import MatchSection
from device_profiles.probes.cpu import CpuFacts
from device_profiles.probes.device_tree import DeviceTree

TREES = Path(__file__).parent / "trees"


def candidate(name: str, machines: tuple[str, ...] = (), **match: object) -> Candidate:
    return Candidate(name, MatchSection.model_validate(match), machines)


def facts(*compatible: str, soc: str = "", memory: int = 0, cpus: int = 0) -> BoardFacts:
    return BoardFacts(
        machine="aarch64",
        tree=DeviceTree(compatible=compatible, source="/proc/device-tree"),
        soc=soc,
        soc_source="somewhere",
        memory_mib=memory,
        cpu=CpuFacts(present=cpus),
    )


def chosen(known: BoardFacts, *candidates: Candidate) -> str:
    choice = choose(known, [candidates])
    assert choice is not None
    assert choice.reasons
    return choice.name


def test_a_special_entry_beats_a_general_one() -> None:
    general, special = (
        candidate("general", compatible=["b,x"]),
        candidate("special", compatible=["a,y"]),
    )
    assert chosen(facts("a,y", "b,x"), general, special) == "special"


def test_module_board_chip_and_machine_decide_in_this_order() -> None:
    machine = candidate("machine", ("aarch64",))
    chip = candidate("chip", soc=["tegra234"])
    board = candidate("board", compatible=["nvidia,p3768-0000+p3767-0001"])
    module = candidate("module", modules=["p3767-0001"])
    known = facts("nvidia,p3768-0000+p3767-0001", soc="tegra234")
    assert chosen(known, machine, chip, board, module) == "module"
    assert chosen(known, machine, chip, board) == "board"
    assert chosen(known, machine, chip) == "chip"
    assert chosen(known, machine) == "machine"
    assert choose(known, [[candidate("other", compatible=["c,z"])]]) is None


@pytest.mark.parametrize(("memory", "name"), [(0, "small"), (4000, "small"), (30000, "big")])
def test_memory_decides_where_names_leave_several(memory: int, name: str) -> None:
    small = candidate("small", compatible=["a,y"], memory_mib=[0, 5000])
    big = candidate("big", compatible=["a,y"], memory_mib=[5001, 40000])
    assert chosen(facts("a,y", memory=memory), big, small) == name


@pytest.mark.parametrize(("cpus", "name"), [(8, "full"), (6, "less"), (0, "full")])
def test_the_count_of_cpus_rules_out(cpus: int, name: str) -> None:
    full = candidate("full", compatible=["a,y"], cpus=[8], priority=1)
    less = candidate("less", compatible=["a,y"], cpus=[4, 5, 6, 7])
    assert chosen(facts("a,y", cpus=cpus), less, full) == name


def test_cores_do_not_decide_where_a_device_tree_names_another_board() -> None:
    cores = candidate("cores", cores={"0x41:0xd0b": 4})
    machine = candidate("machine", ("aarch64",))
    cpu = CpuFacts(cores=("0x41:0xd0b",) * 4)
    unnamed = BoardFacts(machine="aarch64", cpu=cpu)
    assert chosen(unnamed, machine, cores) == "cores"
    named = BoardFacts(machine="aarch64", cpu=cpu, tree=DeviceTree(compatible=("a,y",)))
    assert chosen(named, machine, cores) == "machine"


def test_the_environment_overrules_recognition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOARDVOICE_PROFILE", "jetson-thor")
    found = find_profile(root=TREES / "rock-5b-vendor", machine="aarch64")
    assert (found.profile.name, found.reasons) == ("jetson-thor", ("BOARDVOICE_PROFILE names it",))
    assert load_profile("rock-5a").name == "rock-5a"
    monkeypatch.setenv("BOARDVOICE_PROFILE", "jetson-thorr")
    with pytest.raises(ProfileLoadError, match="no profile is called 'jetson-thorr'"):
        find_profile(root=TREES / "rock-5b-vendor", machine="aarch64")


def test_the_environment_may_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntitle: Mine\nextends: rock-5b\n")
    monkeypatch.setenv("BOARDVOICE_PROFILE", str(path))
    assert load_profile().name == "mine"


def test_a_profile_of_the_user_that_fits_goes_before_the_package_s(
    no_profiles_of_this_user: Path,
) -> None:
    folder = no_profiles_of_this_user
    folder.mkdir(parents=True)
    (folder / "kiosk.yaml").write_text(
        "name: kiosk\ntitle: Kiosk\nextends: rock-5b\nmatch: {compatible: ['radxa,rock-5b']}\n"
        "memory: {hard_mib: 900}\n"
    )
    found = find_profile(root=TREES / "rock-5b-vendor", machine="aarch64")
    assert (found.profile.name, found.profile.memory.hard_mib) == ("kiosk", 900)
    assert found.profile.flow.place == "rknn"
    other = find_profile(root=TREES / "rock-5a-vendor", machine="aarch64")
    assert other.profile.name == "rock-5a"


def test_profiles_below_etc_are_found_and_shadowed_by_the_user_s(
    tmp_path: Path, no_profiles_of_this_user: Path
) -> None:
    root = tmp_path / "root"
    shutil.copytree(TREES / "rock-5b-vendor", root)
    system = root / "etc/boardvoice/profiles"
    system.mkdir(parents=True)
    (system / "hall.yaml").write_text("name: hall\ntitle: System's\nextends: rock-5b\n")
    assert load_profile("hall", root=root).title == "System's"
    no_profiles_of_this_user.mkdir(parents=True)
    (no_profiles_of_this_user / "hall.yaml").write_text(
        "name: hall\ntitle: User's\nextends: rock-5b\n"
    )
    assert load_profile("hall", root=root).title == "User's"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("name: other\ntitle: x\n", "name: must be 'kiosk', like the file, not 'other'"),
        ("name: kiosk\ntitle: x\nmatch: {compatibel: []}\n",
         "match.compatibel: no such key; there are modules"),
        ("name: kiosk\ntitle: x\nmatch: {cpus: [many]}\n",
         "match.cpus.0: Input should be a valid integer"),
        ("name: kiosk\ntitle: x\nmachines: aarch64\n", "machines: must be a list of names"),
        ("- 1\n", "holds no mapping of keys"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_the_user_is_named_instead_of_passed_over(
    no_profiles_of_this_user: Path, text: str, named: str
) -> None:
    no_profiles_of_this_user.mkdir(parents=True)
    path = no_profiles_of_this_user / "kiosk.yaml"
    path.write_text(text)
    with pytest.raises(ProfileLoadError) as caught:
        find_profile(root=TREES / "rock-5b-vendor", machine="aarch64")
    assert str(path) in str(caught.value)
    assert named in str(caught.value)
