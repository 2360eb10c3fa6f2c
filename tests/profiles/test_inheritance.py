"""Profiles inherit: mappings merge, lists are replaced, circles are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_profiles.catalog import ProfileLoadError, find_profile, load_profile
from device_profiles.layers import MAX_LAYERS, ProfileStore
from device_profiles.schema import Profile


def write(folder: Path, name: str, text: str = "") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name}\ntitle: {name}\n{text}")
    return str(path)


def test_what_a_file_leaves_out_is_the_parent_s(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", "extends: orange-pi-5-plus\nkv: {dtype: f16}\n")
    mine, parent = load_profile(path), load_profile("orange-pi-5-plus")
    assert mine.kv == parent.kv.model_copy(update={"dtype": "f16"})
    assert (mine.soc, mine.runtime, mine.figures) == (parent.soc, parent.runtime, parent.figures)
    assert (mine.name, mine.title) == ("mine", "mine")


def test_mappings_merge_deeply_and_lists_are_replaced(tmp_path: Path) -> None:
    path = write(
        tmp_path, "mine",
        "extends: jetson-orin-nano-8gb\nnotes: [One.]\n"
        "figures: {memory_gb_s: {value: 40}}\nproviders: [{name: cpu}]\n"
        "flow: {place: cpu, graphs: ort, precision: null}\n",
    )  # fmt: skip
    mine, parent = load_profile(path), load_profile("jetson-orin-nano-8gb")
    assert mine.notes == ("One.",)
    assert [provider.name for provider in mine.providers] == ["cpu"]
    assert mine.figures.memory_gb_s is not None
    assert parent.figures.memory_gb_s is not None
    assert mine.figures.memory_gb_s.value == 40
    assert mine.figures.memory_gb_s.source == parent.figures.memory_gb_s.source


def test_a_figure_with_a_source_of_its_own_is_not_mixed_with_the_parent_s(tmp_path: Path) -> None:
    own = "{value: 300, measured: true, source: my own benchmark}"
    path = write(
        tmp_path, "mine", f"extends: orange-pi-5\nfigures: {{cpu_int8_gops: {own}}}\n"
    )  # fmt: skip
    mine, parent = load_profile(path).figures.cpu_int8_gops, load_profile("orange-pi-5").figures
    assert parent.cpu_int8_gops is not None
    assert parent.cpu_int8_gops.peak
    assert mine is not None
    assert not mine.peak
    assert mine.value == 300


def test_a_measured_peak_is_refused(tmp_path: Path) -> None:
    own = "{value: 300, measured: true, peak: true, source: my own benchmark}"
    path = write(
        tmp_path, "mine", f"extends: orange-pi-5\nfigures: {{cpu_int8_gops: {own}}}\n"
    )  # fmt: skip
    with pytest.raises(ProfileLoadError, match="what was measured is no peak"):
        load_profile(path)


def test_how_a_board_is_recognized_and_that_it_was_verified_is_not_inherited(
    tmp_path: Path,
) -> None:
    mine = load_profile(write(tmp_path, "mine", "extends: x86-vnni\n"))
    assert mine.match == Profile(name="a", title="b").match
    assert mine.verified == ""


def test_a_value_of_null_undoes_the_parent_s(tmp_path: Path, profiles_of_this_user: Path) -> None:
    write(profiles_of_this_user, "tight", "memory: {hard_mib: 500}\n")
    assert load_profile("tight").memory.hard_mib == 500
    path = write(tmp_path, "mine", "extends: tight\nmemory: {hard_mib: null}\n")
    assert load_profile(path).memory.hard_mib is None


def test_every_layer_s_file_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", "extends: jetson-orin-nano-8gb-super\n")
    found = find_profile(path)
    assert [Path(source).name for source in found.sources] == [
        "mine.yaml", "jetson-orin-nano-8gb-super.yaml", "jetson-orin-nano-8gb.yaml",
        "soc-tegra234.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize("base", ProfileStore.shipped().bases())
def test_every_base_makes_a_profile(tmp_path: Path, base: str) -> None:
    assert load_profile(write(tmp_path, "mine", f"extends: {base}\n")).soc != "any"
    with pytest.raises(ProfileLoadError, match=f"{base!r} is a base: extend it"):
        load_profile(base)


def test_a_parent_that_is_not_there_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", "extends: orange\n")
    with pytest.raises(ProfileLoadError) as caught:
        load_profile(path)
    message = str(caught.value)
    assert f"{path}: extends: no profile is called 'orange'" in message
    assert "orange-pi-5-plus" in message
    assert "soc-rk3588" in message


@pytest.mark.parametrize("parent", ["[a]", "3", "true"])
def test_a_parent_that_is_no_name_is_refused(tmp_path: Path, parent: str) -> None:
    path = write(tmp_path, "mine", f"extends: {parent}\n")
    with pytest.raises(ProfileLoadError, match="extends: must be the name of a profile"):
        load_profile(path)


def test_a_circle_is_refused(profiles_of_this_user: Path) -> None:
    write(profiles_of_this_user, "a", "extends: b\n")
    write(profiles_of_this_user, "b", "extends: a\n")
    with pytest.raises(ProfileLoadError, match="goes in a circle, a > b > a"):
        load_profile("a")
    write(profiles_of_this_user, "c", "extends: c\n")
    with pytest.raises(ProfileLoadError, match="goes in a circle, c > c"):
        load_profile("c")


def test_too_many_layers_are_refused(profiles_of_this_user: Path) -> None:
    write(profiles_of_this_user, "p0")
    for index in range(1, MAX_LAYERS + 1):
        write(profiles_of_this_user, f"p{index}", f"extends: p{index - 1}\n")
    assert load_profile(f"p{MAX_LAYERS - 1}").name == f"p{MAX_LAYERS - 1}"
    with pytest.raises(ProfileLoadError, match=f"more than {MAX_LAYERS} layers"):
        load_profile(f"p{MAX_LAYERS}")


def test_a_wrong_value_is_named_in_the_file_that_says_it(
    tmp_path: Path, profiles_of_this_user: Path
) -> None:
    below = write(profiles_of_this_user, "below", "kv: {rows: 3}\n")
    above = write(tmp_path, "above", "extends: below\nruntime: {threads: 0}\n")
    with pytest.raises(ProfileLoadError) as caught:
        load_profile(above)
    message = str(caught.value)
    assert f"{below} (which {above} extends): kv.rows: no such key" in message
    assert f"{above}: runtime: threads must be" in message


@pytest.mark.parametrize("parent", ["nul\\0", "../boards/rock-5a", "/etc/passwd", ""])
def test_a_parent_is_a_name_and_never_a_path(tmp_path: Path, parent: str) -> None:
    path = write(tmp_path, "mine", f'extends: "{parent}"\n')
    with pytest.raises(ProfileLoadError, match="no profile is called"):
        load_profile(path)


def test_the_example_of_the_docs_is_a_profile(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/add-a-board.md").read_text("utf-8")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    path = tmp_path / "my-board.yaml"
    path.write_text(example)
    profile = load_profile(str(path))
    assert (profile.name, profile.flow.place) == ("my-board", "rknn")
