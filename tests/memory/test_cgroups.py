"""Memory cgroups, v1 and v2, as hosts and containers show them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_tree import MIB, FakeTree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_runtime.memory.cgroups import memory_cgroups

V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"


def available(tree: FakeTree) -> list[int]:
    return [entry.available // MIB for entry in memory_cgroups(tree.root)]


def on_v2(tree: FakeTree, path: str) -> None:
    tree.mount(2, f"/{V2}")
    tree.member(f"0::{path}")


def on_v1(tree: FakeTree, path: str) -> None:
    tree.mount(1, f"/{V1}")
    tree.member("9:name=systemd:/", f"4:memory:{path}", "1:cpu:/")


def test_every_limited_ancestor_counts_innermost_first(tree: FakeTree) -> None:
    on_v2(tree, "/user.slice/session.scope/app")
    tree.v2(f"{V2}/user.slice/session.scope/app", 800, 100)
    tree.v2(f"{V2}/user.slice/session.scope", 300, 250)
    tree.v2(f"{V2}/user.slice", 4000, 1000)
    assert available(tree) == [700, 50, 3000]
    tightest = min(memory_cgroups(tree.root), key=lambda entry: entry.available)
    assert tightest.path.name == "session.scope"


def test_every_limited_ancestor_counts_on_v1_too(tree: FakeTree) -> None:
    on_v1(tree, "/docker/abc")
    tree.v1(f"{V1}/docker/abc", 512, 12)
    tree.v1(f"{V1}/docker", 256, 200)
    tree.v1(V1, None, 3000)
    assert available(tree) == [500, 56]


def test_no_limit_is_no_entry(tree: FakeTree) -> None:
    on_v2(tree, "/a/b")
    tree.v2(f"{V2}/a/b", "max", 100)
    tree.v2(f"{V2}/a", 900, 100)
    assert available(tree) == [800]


def test_the_v1_number_for_unlimited_is_no_limit(tree: FakeTree) -> None:
    on_v1(tree, "/")
    tree.v1(V1, None, 100)
    assert available(tree) == []


@pytest.mark.parametrize("mounted_root", ["/docker/abc", "/kubepods/pod/abc"])
@pytest.mark.parametrize("below", ["", "/inner"])
def test_a_container_that_is_mounted_at_its_own_cgroup(
    tree: FakeTree, mounted_root: str, below: str
) -> None:
    tree.mount(2, f"/{V2}", mounted_root)
    tree.member(f"0::{mounted_root}{below}")
    tree.v2(V2, 700, 100)
    tree.v2(f"{V2}/inner", 300, 100)
    assert available(tree) == ([200, 600] if below else [600])


def test_a_root_whose_name_merely_begins_alike_is_another_cgroup(tree: FakeTree) -> None:
    tree.mount(1, f"/{V1}", "/docker/ab")
    tree.member("4:memory:/docker/abc")
    tree.v1(V1, 700, 100)
    assert available(tree) == [600]


@pytest.mark.parametrize("path", ["/../../other", "/not/visible/here", "/.."])
def test_a_path_outside_the_namespace_falls_back_to_the_mount(tree: FakeTree, path: str) -> None:
    on_v2(tree, path)
    tree.v2(V2, 700, 100)
    # What lies above the mount is none of its cgroups.
    tree.v2("sys/fs", 5, 1)
    tree.v2("sys", 5, 1)
    assert available(tree) == [600]


def test_a_hybrid_host_counts_both_hierarchies(tree: FakeTree) -> None:
    tree.mount(2, f"/{V2}/unified")
    tree.mount(1, f"/{V1}")
    tree.member("4:memory:/job", "0::/job")
    tree.v1(f"{V1}/job", 300, 100)
    # Memory belongs to v1 there, so the unified tree has no such files.
    tree.write(f"{V2}/unified/job/cgroup.procs", "")
    assert available(tree) == [200]


def test_file_pages_are_free_and_shared_memory_is_not(tree: FakeTree) -> None:
    on_v2(tree, "/a")
    tree.v2(f"{V2}/a", 1000, 900, file=700, shmem=200, slab_reclaimable=50)
    assert available(tree) == [1000 - (900 - (700 - 200) - 50)]


def test_file_pages_are_free_on_v1_with_those_of_children(tree: FakeTree) -> None:
    on_v1(tree, "/a")
    tree.v1(f"{V1}/a", 1000, 900, cache=1, total_cache=700, total_shmem=200)
    assert available(tree) == [1000 - (900 - (700 - 200))]


def test_mount_points_with_spaces_are_read_as_the_kernel_writes_them(tree: FakeTree) -> None:
    tree.mount(2, "/my\\040mounts/cg\\134x")
    tree.member("0::/a")
    tree.v2("my mounts/cg\\x/a", 500, 100)
    assert available(tree) == [400]


@pytest.mark.parametrize("missing", ["memory.max", "memory.current", "memory.stat"])
def test_a_missing_file_takes_no_more_than_its_own_cgroup(tree: FakeTree, missing: str) -> None:
    on_v2(tree, "/a/b")
    tree.v2(f"{V2}/a/b", 500, 100)
    tree.v2(f"{V2}/a", 900, 100)
    (tree.root / V2 / "a/b" / missing).unlink()
    assert available(tree) == ([400, 800] if missing == "memory.stat" else [800])


def test_an_overdrawn_cgroup_has_less_than_nothing(tree: FakeTree) -> None:
    on_v1(tree, "/a")
    tree.v1(f"{V1}/a", 100, 130)
    assert available(tree) == [-30]


def test_a_system_without_cgroups_has_none(tmp_path: Path) -> None:
    assert memory_cgroups(tmp_path) == []


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    member=st.text(max_size=40), mounts=st.text(max_size=60),
    number=st.sampled_from(["", "x", "-1", "²", "1 2", "99999999999999999999"]),
    stat=st.text(max_size=30),
)  # fmt: skip
def test_garbage_is_never_an_error(
    tree: FakeTree, member: str, mounts: str, number: str, stat: str
) -> None:
    on_v2(tree, "/a")
    for name, text in (("max", number), ("current", number), ("stat", stat)):
        tree.write(f"{V2}/a/memory.{name}", text)
    memory_cgroups(tree.root)
    (tree.root / "proc/self/cgroup").write_bytes(member.encode("utf-8", "surrogatepass"))
    memory_cgroups(tree.root)
    tree.write("proc/self/mountinfo", mounts.encode("ascii", "ignore").decode())
    memory_cgroups(tree.root)
