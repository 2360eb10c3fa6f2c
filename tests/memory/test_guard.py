"""The guard: makes room gently and in order, and refuses in time with what is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from fake_tree import MIB, FakeTree

from edge_runtime.errors import MemoryBudgetError
from edge_runtime.memory.guard import MARGIN_BYTES, LadderStep, MemoryGuard
from edge_runtime.memory.limits import MemorySettings

MARGIN = MARGIN_BYTES // MIB
HARD = 200


@pytest.fixture
def guard(tree: FakeTree) -> MemoryGuard:
    tree.status(anonymous=100)
    return MemoryGuard(MemorySettings(hard_bytes=HARD * MIB), tree.root)


class Ladder:
    """Steps that each take the process's anonymous memory down to a figure."""

    def __init__(self, tree: FakeTree, guard: MemoryGuard, *results: int | None) -> None:
        self.ran: list[int] = []
        for index, result in enumerate(results):
            guard.add_step(LadderStep(f"step {index}", self._action(tree, index, result)))

    def _action(self, tree: FakeTree, index: int, result: int | None) -> Callable[[], bool]:
        def act() -> bool:
            self.ran.append(index)
            if result is None:
                return False
            tree.status(anonymous=result)
            return True

        return act


def test_nothing_happens_while_there_is_room(tree: FakeTree, guard: MemoryGuard) -> None:
    ladder = Ladder(tree, guard, 0)
    guard.reserve((HARD - 100 - MARGIN) * MIB, "A test")
    assert ladder.ran == []
    assert not guard.events


def test_steps_run_in_order_until_there_is_room_and_no_further(
    tree: FakeTree, guard: MemoryGuard
) -> None:
    ladder = Ladder(tree, guard, 95, None, 60, 0)
    guard.reserve(100 * MIB, "A test")
    assert ladder.ran == [0, 1, 2]
    assert [(event.kind, event.detail) for event in guard.events] == [
        ("made room", "step 0 for A test"), ("made room", "step 2 for A test"),
    ]  # fmt: skip


def test_room_counts_even_if_the_step_claims_to_have_given_nothing(
    tree: FakeTree, guard: MemoryGuard
) -> None:
    later = Ladder(tree, guard)

    def trims_only() -> bool:
        tree.status(anonymous=10)
        return False

    guard.add_step(LadderStep("trim", trims_only))
    guard.add_step(LadderStep("later", later._action(tree, 0, 0)))
    guard.reserve(100 * MIB, "A test")
    assert later.ran == []


def test_a_refusal_says_what_is_needed_what_there_is_and_which_limit_it_is(
    tree: FakeTree, guard: MemoryGuard
) -> None:
    ladder = Ladder(tree, guard, 90, 80)
    with pytest.raises(MemoryBudgetError) as caught:
        guard.reserve(150 * MIB, "Loading lm")
    error = caught.value
    assert ladder.ran == [0, 1]
    assert error.exit_code == 12
    assert (error.needed, error.available) == (150 * MIB, (HARD - 80 - MARGIN) * MIB)
    assert error.limited_by == "hard limit"
    assert error.message == (
        f"Loading lm needs 150 MiB more memory; hard limit ({HARD} MiB) leaves "
        f"{HARD - 80 - MARGIN} MiB."
    )
    assert "prepare" in error.remedy
    assert guard.events[-1].kind == "refused"


def test_an_overdrawn_limit_leaves_zero_and_not_less(tree: FakeTree, guard: MemoryGuard) -> None:
    tree.status(anonymous=HARD + 50)
    with pytest.raises(MemoryBudgetError) as caught:
        guard.reserve(MIB, "A test")
    assert caught.value.available == 0


def test_the_limit_that_is_short_is_named_even_if_another_has_less_left(
    tree: FakeTree, guard: MemoryGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    # Mapped files count against the address space only.
    tree.status(anonymous=100, address_space=300)
    space = {resource.RLIMIT_AS: 500 * MIB, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda number: (space[number], -1))
    guard.reserve(10 * MIB, "A test", mapped=150 * MIB)
    with pytest.raises(MemoryBudgetError) as caught:
        guard.reserve(10 * MIB, "A test", mapped=180 * MIB)
    assert caught.value.limited_by == "RLIMIT_AS"
    assert caught.value.needed == 190 * MIB
    assert guard.tightest().name == "hard limit"
    assert guard.tightest(mapped=True).name == "RLIMIT_AS"


def test_asking_whether_there_is_room_makes_none(tree: FakeTree, guard: MemoryGuard) -> None:
    ladder = Ladder(tree, guard, 0)
    assert guard.has_room(50 * MIB)
    assert not guard.has_room(150 * MIB)
    assert ladder.ran == []
    assert not guard.events


def test_a_check_between_patches_finds_what_others_have_taken(
    tree: FakeTree, guard: MemoryGuard
) -> None:
    tree.meminfo(available=500)
    guard.check("Speaking")
    assert not guard.events
    # A neighbour takes nearly everything; nothing of our own can be given back.
    tree.meminfo(available=64 + MARGIN - 1)
    with pytest.raises(MemoryBudgetError, match="MemAvailable less the reserve") as caught:
        guard.check("Speaking")
    assert caught.value.message.startswith("Speaking cannot go on; ")


def test_above_the_soft_limit_one_step_is_taken_per_check_and_nothing_is_refused(
    tree: FakeTree,
) -> None:
    tree.status(anonymous=100)
    guard = MemoryGuard(MemorySettings(soft_bytes=80 * MIB), tree.root)
    ladder = Ladder(tree, guard, None, 90, 70)
    guard.check("Speaking")
    assert ladder.ran == [0, 1]
    assert [event.kind for event in guard.events] == ["pressure"]
    assert "100 MiB is over the soft limit of 80 MiB" in guard.events[0].detail
    tree.status(anonymous=70)
    guard.check("Speaking")
    assert ladder.ran == [0, 1]


@pytest.mark.parametrize(("percent", "steps"), [(19.9, []), (20.1, [0])])
def test_much_waiting_for_memory_takes_a_step(
    tree: FakeTree, guard: MemoryGuard, percent: float, steps: list[int]
) -> None:
    ladder = Ladder(tree, guard, 90, 80)
    tree.stall(percent)
    guard.check("Speaking")
    assert ladder.ran == steps
    assert [event.kind for event in guard.events] == ["pressure"] * len(steps)


def test_one_stall_is_answered_by_one_step_however_often_it_is_looked_at(
    tree: FakeTree, guard: MemoryGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder = Ladder(tree, guard, None, 90)
    now = [1000.0]
    monkeypatch.setattr("edge_runtime.memory.guard.time.monotonic", lambda: now[0])
    tree.stall(60)
    for _ in range(3):
        guard.check("Speaking")
    assert ladder.ran == [0, 1]
    # The figure is an average of 10 s: only now can it tell whether that was enough.
    now[0] += 10.5
    guard.check("Speaking")
    assert ladder.ran == [0, 1, 0, 1]
    now[0] += 10.5
    tree.stall(1)
    guard.check("Speaking")
    assert len(guard.events) == 2


def test_events_of_months_do_not_pile_up(tree: FakeTree) -> None:
    tree.status(anonymous=100)
    guard = MemoryGuard(MemorySettings(soft_bytes=80 * MIB), tree.root)
    Ladder(tree, guard, 90)
    for _ in range(1000):
        guard.check("Speaking")
    assert len(guard.events) == 256
    assert guard.events[-1].kind == "pressure"


def test_many_threads_never_climb_the_ladder_at_once(tree: FakeTree, guard: MemoryGuard) -> None:
    inside, most = 0, []
    start = threading.Barrier(8)

    def step() -> bool:
        nonlocal inside
        inside += 1
        most.append(inside)
        # Asking again from within a step must not lock up either.
        guard.has_room(1)
        inside -= 1
        return True

    guard.add_step(LadderStep("step", step))
    refused = []

    def ask() -> None:
        start.wait(20)
        for _ in range(10):
            try:
                guard.reserve(500 * MIB, "A test")
            except MemoryBudgetError as error:
                refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(refused) == 80
    assert set(most) == {1}
    assert len(guard.events) == 160


def test_a_check_asks_for_what_the_next_step_takes(tree: FakeTree, guard: MemoryGuard) -> None:
    ladder = Ladder(tree, guard, 90)
    guard.check("Speaking", (HARD - 100 - MARGIN) * MIB)
    assert ladder.ran == []
    guard.check("Speaking", (HARD - 90 - MARGIN) * MIB)
    assert ladder.ran == [0]
    with pytest.raises(MemoryBudgetError, match="Speaking needs 87 MiB more"):
        guard.check("Speaking", (HARD - 90 - MARGIN + 1) * MIB)


def test_room_can_be_made_without_refusing(tree: FakeTree, guard: MemoryGuard) -> None:
    ladder = Ladder(tree, guard, 90, 80)
    assert guard.make_room((HARD - 90 - MARGIN) * MIB, "A test")
    assert ladder.ran == [0]
    assert not guard.make_room(150 * MIB, "A test")
    assert [event.kind for event in guard.events] == ["made room"] * 3


def test_room_for_conveniences_ends_at_the_soft_limit(tree: FakeTree) -> None:
    tree.status(anonymous=100)
    settings = MemorySettings(hard_bytes=HARD * MIB, soft_bytes=110 * MIB)
    guard = MemoryGuard(settings, tree.root)
    assert guard.has_room(10 * MIB)
    assert not guard.has_room(11 * MIB)
    assert guard.has_room(11 * MIB, soft=False)
    guard.reserve(50 * MIB, "A test")
    assert guard.tightest().name == "hard limit"


@pytest.fixture
def throttled(tree: FakeTree) -> MemoryGuard:
    """In a cgroup with memory.high at 300 MiB, of which 250 are taken."""
    tree.status(anonymous=100)
    tree.mount(2, "/sys/fs/cgroup")
    tree.member("0::/a/b")
    tree.v2("sys/fs/cgroup/a/b", "max", 250)
    tree.write("sys/fs/cgroup/a/b/memory.high", f"{300 * MIB}\n")
    return MemoryGuard(root=tree.root)


def test_near_memory_high_nothing_is_refused_and_no_conveniences_are_kept(
    tree: FakeTree, throttled: MemoryGuard
) -> None:
    ladder = Ladder(tree, throttled, 90)
    throttled.reserve(500 * MIB, "A test")
    throttled.check("Speaking")
    assert ladder.ran == []
    assert throttled.has_room(40 * MIB)
    assert not throttled.has_room(60 * MIB)
    assert throttled.tightest() is None


def test_above_memory_high_things_are_given_back_and_then_it_says_why_it_is_slow(
    tree: FakeTree, throttled: MemoryGuard, caplog: pytest.LogCaptureFixture
) -> None:
    left = [True]
    throttled.add_step(LadderStep("step", lambda: bool(left) and left.pop()))
    # File pages count, but the kernel drops those first.
    tree.v2("sys/fs/cgroup/a/b", "max", 500, file=300)
    throttled.check("Speaking")
    assert (left, throttled.slowdown()) == ([True], "")
    tree.v2("sys/fs/cgroup/a/b", "max", 310)
    throttled.check("Speaking")
    assert [event.kind for event in throttled.events] == ["pressure"]
    assert "310 MiB is over the memory.high of cgroup" in throttled.events[0].detail
    assert throttled.slowdown() == ""
    for _ in range(3):
        throttled.check("Speaking")
    assert len(caplog.records) == 1
    reason = throttled.slowdown()
    assert reason == caplog.records[0].getMessage()
    assert reason.startswith("The kernel slows this process down: 310 MiB are over memory.high")
    assert throttled.slowdown() == ""
