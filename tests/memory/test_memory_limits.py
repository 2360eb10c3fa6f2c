"""All limits of the process, where they come from, and which is the tightest."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from fake_tree import MIB, FakeTree

from device_profiles.catalog import load_profile
from device_profiles.schema import MemorySection, Profile
from edge_runtime.errors import UsageError
from edge_runtime.loader import HARD_VARIABLE, SOFT_VARIABLE, LoadOptions, memory_settings
from edge_runtime.loader import parse_size as parse
from edge_runtime.memory.limits import MemorySettings, ProcessMemory, current_limits
from edge_runtime.memory.psi import memory_stall_percent
from edge_runtime.memory.watch import MemoryWatch

ROOT = Path(__file__).resolve().parents[2]
OWN_LIMITS = """
import json, resource, sys
from edge_runtime.memory.limits import MemorySettings, current_limits
number = getattr(resource, sys.argv[1])
resource.setrlimit(number, (int(sys.argv[2]), resource.getrlimit(number)[1]))
found = {limit.name: limit for limit in current_limits(MemorySettings())}[sys.argv[1]]
print(json.dumps([found.limit, found.available, found.mappings_count]))
"""


def names(tree: FakeTree, settings: MemorySettings | None = None) -> list[str]:
    return [limit.name for limit in current_limits(settings or MemorySettings(), tree.root)]


def test_a_system_that_tells_nothing_has_no_limits(tree: FakeTree) -> None:
    assert names(tree) == []


def test_available_memory_counts_less_the_reserve(tree: FakeTree) -> None:
    tree.meminfo(available=500, total=2000)
    (limit,) = current_limits(MemorySettings(reserve_bytes=64 * MIB), tree.root)
    assert (limit.limit, limit.available) == (1936 * MIB, 436 * MIB)
    (limit,) = current_limits(MemorySettings(reserve_bytes=600 * MIB), tree.root)
    assert limit.available == -100 * MIB


def test_the_tightest_limit_comes_first(tree: FakeTree) -> None:
    tree.meminfo(available=500)
    tree.status(anonymous=90)
    tree.mount(2, "/sys/fs/cgroup")
    tree.member("0::/a")
    tree.v2("sys/fs/cgroup/a", 300, 100)
    settings = MemorySettings(hard_bytes=250 * MIB)
    assert [(limit.name.split(" /")[0], limit.available // MIB)
            for limit in current_limits(settings, tree.root)] == [
        ("hard limit", 160), ("cgroup", 200), ("MemAvailable less the reserve", 436),
    ]  # fmt: skip


def test_the_hard_limit_counts_anonymous_memory_and_not_mapped_files(tree: FakeTree) -> None:
    tree.write("proc/self/status", "RssAnon: 1024 kB\nRssShmem: 1024 kB\nRssFile: 900000 kB\n")
    (limit,) = current_limits(MemorySettings(hard_bytes=10 * MIB), tree.root)
    assert limit.available == 8 * MIB


def test_resource_limits_count_what_the_kernel_counts(
    tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.status(anonymous=10, address_space=300, data=120)
    soft = {resource.RLIMIT_AS: 500 * MIB, resource.RLIMIT_DATA: 200 * MIB}
    monkeypatch.setattr(resource, "getrlimit", lambda number: (soft[number], -1))
    data, space = current_limits(MemorySettings(), tree.root)
    assert (data.name, data.available, data.mappings_count) == ("RLIMIT_DATA", 80 * MIB, False)
    assert (space.name, space.available, space.mappings_count) == ("RLIMIT_AS", 200 * MIB, True)


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_process_finds_its_own_resource_limit(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWN_LIMITS, name, str(1 << 33)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True,
    )  # fmt: skip
    limit, available, mappings = json.loads(done.stdout)
    assert limit == 1 << 33
    assert 0 < available < limit
    assert mappings is (name == "RLIMIT_AS")


@pytest.mark.parametrize(
    "text", ["", "\0", "RssAnon:\n", "RssAnon: x kB\n", "RssAnon: 5 MB\n", "kB", ": kB\n\n 3 kB"]
)
def test_garbage_in_proc_is_no_figure_and_no_error(tree: FakeTree, text: str) -> None:
    for name in ("proc/self/status", "proc/meminfo", "proc/pressure/memory"):
        tree.write(name, text)
    assert ProcessMemory.read(tree.root) == ProcessMemory(0, 0, 0, 0)
    assert names(tree) == []
    assert memory_stall_percent(tree.root) is None


def test_a_process_name_that_is_no_ascii_does_not_matter(tree: FakeTree) -> None:
    tree.write("proc/self/status", "Name:\tgrüße\nRssAnon:\t 42 kB\n")
    assert ProcessMemory.read(tree.root).anonymous == 42 * 1024
    (tree.root / "proc/self/status").write_bytes(b"Name:\t\xff\nRssAnon:\t 42 kB\n")
    assert ProcessMemory.read(tree.root).anonymous == 42 * 1024


def test_available_memory_without_a_total_is_left_out(tree: FakeTree) -> None:
    tree.write("proc/meminfo", "MemAvailable: 100 kB\n")
    assert names(tree) == []


def test_pressure_is_the_share_in_which_some_task_waited(tree: FakeTree) -> None:
    assert memory_stall_percent(tree.root) is None
    tree.stall(12.5)
    assert memory_stall_percent(tree.root) == 12.5
    tree.write("proc/pressure/memory", "\nsome avg10=x\nsome\nfull avg10=3.00\n")
    assert memory_stall_percent(tree.root) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("800M", 800 * MIB), ("800m", 800 * MIB), ("800MB", 800 * MIB), ("800MiB", 800 * MIB),
        ("1.5G", 1536 * MIB), ("64k", 65536), (" 2 g ", 2048 * MIB), ("1073741824", 1 << 30),
        ("12B", 12), ("0.5k", 512),
    ],
)  # fmt: skip
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "", "M", "-5M", "0", "0.2", "nan", "inf", "1e400", "5T", "5MM", "five", "1,5G", "1.G",
        "9" * 30,
    ],
)  # fmt: skip
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no size; write 800M or 1\.5G"):
        parse(text)


def profile(**section: object) -> Profile:
    return load_profile("generic-x86-64").model_copy(update={"memory": MemorySection(**section)})


def test_an_option_goes_before_the_environment_and_that_before_the_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(HARD_VARIABLE, raising=False)
    monkeypatch.delenv(SOFT_VARIABLE, raising=False)
    both = profile(hard_mib=300, soft_mib=200, reserve_mib=5)
    option = LoadOptions(memory_limit=100 * MIB, memory_soft=90 * MIB)

    def found(options: LoadOptions) -> tuple[int | None, ...]:
        settings = memory_settings(both, options)
        return settings.hard_bytes, settings.soft_bytes, settings.reserve_bytes

    assert found(LoadOptions()) == (300 * MIB, 200 * MIB, 5 * MIB)
    monkeypatch.setenv(HARD_VARIABLE, "150M")
    monkeypatch.setenv(SOFT_VARIABLE, "140M")
    assert found(LoadOptions()) == (150 * MIB, 140 * MIB, 5 * MIB)
    assert found(option) == (100 * MIB, 90 * MIB, 5 * MIB)
    monkeypatch.setenv(SOFT_VARIABLE, "")
    assert found(LoadOptions()) == (150 * MIB, 200 * MIB, 5 * MIB)
    assert memory_settings(profile(), LoadOptions()).soft_bytes is None


@pytest.mark.parametrize("variable", [HARD_VARIABLE, SOFT_VARIABLE])
def test_an_environment_value_that_is_no_size_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "lots")
    with pytest.raises(UsageError, match=rf"{variable}: 'lots' is no size"):
        memory_settings(profile(), LoadOptions())


@pytest.mark.parametrize("name", ["memory_limit", "memory_soft"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_of_nothing_is_a_usage_error(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=name):
        LoadOptions(**{name: value})


def test_a_watch_keeps_the_peak_and_on_request_every_sample(tree: FakeTree) -> None:
    tree.status(anonymous=10)
    held = [3]
    with MemoryWatch(tree.root, keep=True, gauges={"kv": lambda: held[0]}) as watch:
        tree.status(anonymous=70)
        watch.take()
        tree.status(anonymous=20)
        held[0] = 9
    assert watch.peak == 70 * MIB
    first, last = watch.samples[0], watch.samples[-1]
    assert (first.anonymous, first.gauges["kv"]) == (10 * MIB, 3)
    assert (last.anonymous, last.gauges["kv"]) == (20 * MIB, 9)
    assert first.seconds <= last.seconds


def test_waiting_is_that_of_the_own_cgroup_where_it_is_told(tree: FakeTree) -> None:
    tree.stall(50)
    tree.mount(2, "/sys/fs/cgroup")
    tree.member("0::/a/b")
    tree.v2("sys/fs/cgroup/a/b", "max", 1)
    assert memory_stall_percent(tree.root) == 50
    tree.stall(7, "sys/fs/cgroup/a/memory.pressure")
    assert memory_stall_percent(tree.root) == 50
    tree.stall(3, "sys/fs/cgroup/a/b/memory.pressure")
    assert memory_stall_percent(tree.root) == 3
    # As where the kernel was told not to count.
    tree.write("sys/fs/cgroup/a/b/memory.pressure", "")
    assert memory_stall_percent(tree.root) == 50


def test_memory_high_of_every_ancestor_is_a_soft_limit(tree: FakeTree) -> None:
    tree.status(anonymous=10)
    tree.mount(2, "/sys/fs/cgroup")
    tree.member("0::/a/b")
    tree.v2("sys/fs/cgroup/a/b", 900, 100)
    tree.v2("sys/fs/cgroup/a", "max", 150)
    tree.write("sys/fs/cgroup/a/b/memory.high", "max\n")
    tree.write("sys/fs/cgroup/a/memory.high", f"{200 * MIB}\n")
    found = current_limits(MemorySettings(soft_bytes=500 * MIB), tree.root)
    assert [(limit.name.split(" /")[0], limit.available // MIB, limit.soft) for limit in found] == [
        ("memory.high of cgroup", 50, True), ("soft limit", 490, True), ("cgroup", 800, False),
    ]  # fmt: skip
