"""Profiles: found by name, path or machine; what is wrong is named."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from device_profiles.catalog import (
    ProfileLoadError,
    load_profile,
    profile_names,
    usable_cpus,
)
from device_profiles.schema import Profile, WeightsSection

GOOD = "name: mine\ntitle: My board\n"


def file(folder: Path, text: str | bytes, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def refusal(name: str) -> str:
    with pytest.raises(ProfileLoadError) as caught:
        load_profile(name)
    assert name in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_that_ships_is_valid_and_named_after_its_file(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.title


def test_no_machine_belongs_to_two_profiles() -> None:
    machines = [m for name in profile_names() for m in load_profile(name).machines]
    assert len(machines) == len(set(machines))


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("x86_64", "generic-x86-64"), ("AMD64", "generic-x86-64"),
        ("aarch64", "generic-aarch64"), ("arm64", "generic-aarch64"),
    ],
)  # fmt: skip
def test_the_machine_chooses_a_profile(
    machine: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_profile(machine=machine, root=tmp_path).name == name
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert load_profile(root=tmp_path).name == name


@pytest.mark.parametrize("machine", ["riscv64", "armv7l", ""])
def test_an_unknown_machine_is_told_what_is_known(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(ProfileLoadError, match=rf"{machine!r}.*aarch64.*x86_64.*--profile"):
        load_profile(root=tmp_path)


@pytest.mark.parametrize("name", ["raspberry", "", "generic", "Generic-x86-64", "mine.json"])
def test_an_unknown_name_is_told_which_there_are(name: str) -> None:
    message = refusal(name)
    assert all(known in message for known in profile_names())
    assert ".yaml" in message


@pytest.mark.parametrize("name", ["mine.yaml", "mine.yml"])
def test_a_file_is_loaded_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text = GOOD + "weights: int4\nruntime: {threads: 3, spinning: false}\nkv: {bucket_rows: 64}\n"
    path = file(tmp_path, text, name)
    profile = load_profile(path)
    assert profile.weights == WeightsSection(plan="int4")
    assert (profile.runtime.threads, profile.kv.bucket_rows) == (3, 64)
    monkeypatch.chdir(tmp_path)
    assert load_profile(name) == load_profile(f"./{name}") == profile


def test_a_profile_names_formats_that_differ_from_its_plan(tmp_path: Path) -> None:
    text = GOOD + "weights: {plan: int4, formats: {flow.down: int8-128, lm.residual: int8-32}}\n"
    weights = load_profile(file(tmp_path, text)).weights
    assert weights.plan == "int4"
    assert weights.formats == {"flow.down": "int8-128", "lm.residual": "int8-32"}


def test_what_a_file_leaves_out_has_defaults(tmp_path: Path) -> None:
    profile = load_profile(file(tmp_path, GOOD))
    assert profile == Profile(name="mine", title="My board")
    assert profile.runtime.threads == "auto"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("titel: x\n", "titel: no such key; there are name, title, machines, weights"),
        ("runtime: {thread: 1}\n", "runtime.thread: no such key; there are threads, spinning"),
        ("kv: {rows: 1}\n", "kv.rows: no such key; there are dtype, bucket_rows, max_rows"),
        ("text: {rows: 1}\n", "text.rows: no such key; there are chunk_rows"),
        ("weights: int2\n", "weights.plan: Input should be 'f32', 'f16', 'int8' or 'int4'"),
        ("weights: 8\n", "weights: "),
        ("weights: {lm: f32}\n", "weights.lm: no such key; there are plan, formats"),
        ("weights: {formats: {lms: f32}}\n", "no layer kind is called 'lms'; there are lm.base"),
        ("weights: {formats: {lm: int2}}\n", "lm.base.qkv cannot be 'int2'; it may be f32, f16,"),
        ("weights: {formats: {embedding: int8}}\n", "embedding cannot be 'int8'; it may be f32"),
        ("weights: {formats: {lm: 4}}\n", "weights.formats.lm: Input should be a valid string"),
        ("runtime: {threads: many}\n", "Input should be 'auto'"),
        ("runtime: {threads: 0}\n", "threads must be 'auto' or 1 to 1024"),
        ("runtime: {threads: on}\n", "runtime.threads"),
        ("runtime: {threads: 1.5}\n", "runtime.threads"),
        ("runtime: {spinning: 1}\n", "runtime.spinning: Input should be a valid boolean"),
        ("runtime: 4\n", "runtime"),
        ("kv: {bucket_rows: 100}\n", "kv.bucket_rows: Input should be a multiple of 16"),
        ("kv: {bucket_rows: '256'}\n", "kv.bucket_rows: Input should be a valid integer"),
        ("kv: {bucket_rows: 0}\n", "kv.bucket_rows: Input should be greater than or equal to 16"),
        ("kv: {max_rows: 8}\n", "kv.max_rows"),
        ("text: {chunk_rows: 1}\n", "text.chunk_rows"),
        ("machines: x86_64\n", "machines"),
        ("machines: [1]\n", "machines.0"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_is_allowed(
    tmp_path: Path, text: str, named: str
) -> None:
    assert named in refusal(file(tmp_path, GOOD + text))


@pytest.mark.parametrize("text", ["title: x\n", "name: A B\ntitle: x\n", "name: 3\ntitle: x\n"])
def test_a_missing_or_wrong_name_is_named(tmp_path: Path, text: str) -> None:
    assert "name: " in refusal(file(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "- a\n", "{", "a: b: c\n", "a: !!python/object:os.system x\n", b"\xff\xfe\x00",
        "[" * 5000, "1: 2\n", "\x00",
    ],
)  # fmt: skip
def test_a_file_that_is_no_profile_is_named(tmp_path: Path, text: str | bytes) -> None:
    refusal(file(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(str(tmp_path / "none.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    assert "cannot be read" in refusal(str(tmp_path / "folder.yaml"))
    assert "cannot be read" in refusal("nul\0.yaml")


def test_cpus_that_this_process_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert usable_cpus(Path("/nonexistent")) == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cpus(Path("/nonexistent")) == 64


@pytest.mark.parametrize(("quota", "cpus"), [("150000", 2), ("50000", 1), ("max", 64), ("0", 64)])
def test_time_that_the_cgroup_does_not_give_counts_no_more_than_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cpus: int
) -> None:
    import os

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    group = tmp_path / "sys/fs/cgroup/service"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/service/inner\n")
    (group / "cpu.max").write_text(f"{quota} 100000\n")
    assert usable_cpus(tmp_path) == cpus
