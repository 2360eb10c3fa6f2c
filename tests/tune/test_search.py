"""Which candidate is taken, by injected times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from device_profiles.cores import big_cores, usable_cores
from edge_runtime.runtime_choice import RuntimeChoice
from edge_runtime.tune.search import Cost, Runner, compare, cores_and_threads, is_better, search

TWO = RuntimeChoice(2)
RULES = Callable[[RuntimeChoice], Cost]


@dataclass
class Fake:
    """Opens choices whose runs cost what a rule says.

    Attributes:
        rule: Cost of a choice.
        order: Choices in the order they ran.
        opened: Choices that are open now.
    """

    rule: RULES
    order: list[RuntimeChoice] = field(default_factory=list)
    opened: list[RuntimeChoice] = field(default_factory=list)

    @contextmanager
    def open(self, choice: RuntimeChoice) -> Iterator[Runner]:
        self.opened.append(choice)
        assert len(self.opened) <= 2

        def run() -> Cost:
            self.order.append(choice)
            return self.rule(choice)

        yield run
        self.opened.remove(choice)


def tree(root: Path, *capacities: int) -> Path:
    for cpu, capacity in enumerate(capacities):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        folder.mkdir(parents=True)
        (folder / "cpu_capacity").write_text(f"{capacity}\n")
    return root


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def use(count: int) -> None:
        monkeypatch.setattr("edge_runtime.tune.search.usable_cores", lambda: tuple(range(count)))

    return use


ROCK = (430, 430, 430, 430, 1024, 1024, 1024, 1020)


def test_big_cores_are_those_with_most_of_the_capacity(tmp_path: Path) -> None:
    root = tree(tmp_path, *ROCK)
    assert big_cores(range(8), root) == (4, 5, 6, 7)
    assert big_cores((0, 1, 2, 6), root) == (6,)
    # All that are left are alike.
    assert big_cores((0, 1), root) == big_cores((5, 7), root) == ()


def test_without_capacities_no_core_is_big(tmp_path: Path) -> None:
    assert big_cores(range(2), tmp_path) == ()
    assert big_cores((), tmp_path) == ()
    tree(tmp_path, 1024, 430)
    (tmp_path / "sys/devices/system/cpu/cpu1/cpu_capacity").write_text("many")
    assert big_cores(range(2), tmp_path) == ()


def test_usable_cores_are_those_of_this_thread() -> None:
    assert usable_cores() == tuple(sorted(usable_cores())) != ()


def test_candidates_of_a_board_are_its_big_cores_and_all(
    tmp_path: Path, cpus: Callable[[int], None]
) -> None:
    cpus(8)
    found = [(c.threads, c.cores) for c in cores_and_threads(TWO, tree(tmp_path, *ROCK))]
    big = (4, 5, 6, 7)
    assert found == [(4, big), (3, big), (2, big), (8, ()), (7, ()), (4, ())]


@pytest.mark.parametrize(
    ("count", "threads"), [(1, [1]), (2, [2, 1]), (3, [3, 2]), (4, [4, 3, 2]), (16, [16, 15, 8])]
)
def test_candidates_of_like_cores_name_none(
    tmp_path: Path, cpus: Callable[[int], None], count: int, threads: list[int]
) -> None:
    cpus(count)
    found = list(cores_and_threads(TWO, tmp_path))
    assert [choice.threads for choice in found] == threads
    assert all(choice.cores == () for choice in found)


@pytest.mark.parametrize(
    ("ratios", "cpu", "taken"),
    [
        ([0.9] * 6, 1.0, True),
        ([0.9] * 6, 3.0, True),
        ([0.98] * 6, 1.0, False),
        ([1.01] * 6, 0.95, False),
        ([1.01] * 6, 0.6, True),
        ([1.05] * 6, 0.6, False),
        # One disturbed round decides nothing, in either direction.
        ([0.9, 0.9, 0.9, 0.9, 0.9, 4.0], 1.0, True),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 0.2], 1.0, False),
        # Faster in the middle, and slower as often as not.
        ([0.8, 0.8, 0.93, 0.95, 1.2, 1.3], 1.0, False),
    ],
)
def test_better_is_faster_by_a_margin_or_as_fast_and_cheaper(
    ratios: list[float], cpu: float, taken: bool
) -> None:
    assert is_better(ratios, cpu) is taken


def test_runs_alternate_and_change_places() -> None:
    fake = Fake(lambda choice: Cost(100.0 * choice.threads, 1.0))
    one = RuntimeChoice(1)
    trial = compare(one, TWO, fake.open, 4)
    warm, counted = fake.order[:2], fake.order[2:]
    assert warm == [TWO, one]
    assert counted == [TWO, one, one, TWO, TWO, one, one, TWO]
    assert (trial.ratio, trial.patch_ms, trial.beside_patch_ms) == (0.5, 100.0, 200.0)
    assert (trial.rounds, trial.taken) == (4, True)
    assert fake.opened == []


def test_no_cpu_time_at_all_is_no_reason() -> None:
    fake = Fake(lambda choice: Cost(100.0, 0.0))
    assert not compare(RuntimeChoice(1), TWO, fake.open, 2).taken


def test_the_profile_is_kept_when_nothing_is_better(
    tmp_path: Path, cpus: Callable[[int], None]
) -> None:
    cpus(4)
    start = RuntimeChoice(4)
    best, trials = search(start, Fake(lambda _: Cost(100.0, 1.0)).open, rounds=3, root=tmp_path)
    assert best == start
    tried = [(t.candidate.threads, t.candidate.spinning, t.candidate.overlap_vae) for t in trials]
    # Never against itself.
    assert tried == [(3, False, False), (2, False, False), (4, True, False), (4, False, True)]
    assert not any(trial.taken for trial in trials)


def test_a_board_takes_its_big_cores_then_looks_at_spinning(
    tmp_path: Path, cpus: Callable[[int], None]
) -> None:
    cpus(8)

    def rule(choice: RuntimeChoice) -> Cost:
        speed = sum(1.0 if cpu in choice.cores else 0.6 for cpu in range(choice.threads))
        wall = 50.0 if choice.cores and choice.threads == 3 else 100.0 / speed + 60
        return Cost(wall * (0.9 if choice.spinning else 1.0), 1.0)

    told: list[tuple[RuntimeChoice, RuntimeChoice]] = []
    best, trials = search(
        RuntimeChoice(8), Fake(rule).open, rounds=3, root=tree(tmp_path, *ROCK),
        on_trial=lambda *pair: told.append(pair),
    )  # fmt: skip
    assert best == RuntimeChoice(3, spinning=True, cores=(4, 5, 6, 7))
    assert len(told) == len(trials)
    # Each is compared with the best so far.
    for before, after in itertools.pairwise(trials):
        assert after.beside == (before.candidate if before.taken else before.beside)
