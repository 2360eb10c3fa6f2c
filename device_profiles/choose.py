"""From facts to a profile, with the reason for every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from device_profiles.detect import BoardFacts
from device_profiles.hardware import MatchSection


@dataclass(frozen=True)
class Candidate:
    """A profile that may be chosen.

    Attributes:
        name: Its name.
        match: How it is recognized.
        machines: Values of `uname -m` that select it where nothing else does.
    """

    name: str
    match: MatchSection
    machines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        name: Name of the profile.
        reasons: Why, step by step.
    """

    name: str
    reasons: tuple[str, ...]


# Finds the candidates at the first entry that fits, and says which entry that was.
_Step = Callable[[BoardFacts, Sequence[Candidate]], tuple[list[Candidate], str]]


def choose(facts: BoardFacts, groups: Sequence[Sequence[Candidate]]) -> Choice | None:
    """Choose the profile that fits best.

    Within a group the surest sign decides: the Jetson module, then the board's name in the device
    tree from its most special entry on, the chip, the kinds of CPU cores or their flags, at last
    `uname -m`. Where a sign leaves several, memory decides, then priority.

    Args:
        facts: What is known.
        groups: Candidates; a group is looked at only where the ones before have none that fits.

    Returns:
        The choice, or None where nothing fits.
    """
    for group in groups:
        allowed = [c for c in group if not c.match.cpus or _cpus_fit(facts, c.match)]
        for step in (_by_module, _by_compatible, _by_chip, _by_cores, _by_flags, _by_machine):
            found, reason = step(facts, allowed)
            if found:
                return _narrowed(facts, found, reason)
    return None


def _narrowed(facts: BoardFacts, found: list[Candidate], reason: str) -> Choice:
    reasons = [reason]
    if len(found) > 1:
        reasons[0] += f", which leaves {', '.join(sorted(c.name for c in found))}"
        sized = [c for c in found if c.match.memory_mib is not None]
        fitting = [c for c in sized if _memory_fits(facts, c.match)]
        if fitting:
            found = fitting
            reasons.append(f"{facts.memory_mib} MiB of memory")
        elif sized:
            found = [min(sized, key=lambda c: c.match.memory_mib or (0, 0))]
            reasons.append(f"{facts.memory_mib or 'unknown'} MiB of memory: the smallest of them")
    found = sorted(found, key=lambda c: (-c.match.priority, c.name))
    if len(found) > 1:
        reasons.append(f"{found[0].name} has the highest priority")
    if found[0].match.cpus:
        reasons.append(f"{facts.cpu.present or 'unknown'} CPUs")
    return Choice(found[0].name, tuple(reasons))


def _by_module(facts: BoardFacts, candidates: Sequence[Candidate]) -> tuple[list[Candidate], str]:
    for module in facts.tree.modules():
        found = [c for c in candidates if module in c.match.modules]
        if found:
            source = facts.tree.part_source or f"{facts.tree.source}/compatible"
            return found, f"module {module} ({source})"
    return [], ""


def _by_compatible(
    facts: BoardFacts, candidates: Sequence[Candidate]
) -> tuple[list[Candidate], str]:
    for entry in facts.tree.compatible:
        found = [c for c in candidates if entry in c.match.compatible]
        if found:
            return found, f"board {entry} ({facts.tree.source}/compatible)"
    return [], ""


def _by_chip(facts: BoardFacts, candidates: Sequence[Candidate]) -> tuple[list[Candidate], str]:
    found = [c for c in candidates if facts.soc and facts.soc in c.match.soc]
    return found, f"chip {facts.soc} ({facts.soc_source})"


def _by_cores(facts: BoardFacts, candidates: Sequence[Candidate]) -> tuple[list[Candidate], str]:
    cores = Counter(facts.cpu.cores)
    # A device tree that names another board is surer than its cores.
    if facts.tree.compatible or not cores:
        return [], ""
    found = [c for c in candidates if c.match.cores and Counter(c.match.cores) == cores]
    kinds = ", ".join(f"{count} of {kind}" for kind, count in cores.items())
    return found, f"no device tree; CPU cores {kinds} (/proc/cpuinfo)"


def _by_flags(facts: BoardFacts, candidates: Sequence[Candidate]) -> tuple[list[Candidate], str]:
    found: list[Candidate] = []
    seen: set[str] = set()
    for candidate in candidates:
        match = candidate.match
        any_of = [flag for flag in match.any_flags if flag in facts.cpu.flags]
        if not (match.flags or match.any_flags) or (match.any_flags and not any_of):
            continue
        if candidate.machines and facts.machine not in candidate.machines:
            continue
        if set(match.flags) <= facts.cpu.flags:
            found.append(candidate)
            seen.update(match.flags, any_of)
    best = max((c.match.priority for c in found), default=0)
    flags = " ".join(sorted(seen))
    return [c for c in found if c.match.priority == best], f"CPU flags {flags} (/proc/cpuinfo)"


def _by_machine(facts: BoardFacts, candidates: Sequence[Candidate]) -> tuple[list[Candidate], str]:
    found = [
        c for c in candidates
        if facts.machine in c.machines and not (c.match.flags or c.match.any_flags)
    ]  # fmt: skip
    return found, f"machine {facts.machine} (uname -m)"


def _cpus_fit(facts: BoardFacts, match: MatchSection) -> bool:
    return not facts.cpu.present or facts.cpu.present in match.cpus


def _memory_fits(facts: BoardFacts, match: MatchSection) -> bool:
    low, high = match.memory_mib or (0, 0)
    return low <= facts.memory_mib <= high
