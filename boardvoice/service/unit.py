"""The unit of a service that speaks: when it starts, as whom, within which limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from boardvoice.service import sandbox
from boardvoice.service.memory_bounds import MemoryBounds
from boardvoice.service.unit_text import (
    Entry,
    command_line,
    environment,
    paths,
    rest_of_line,
    section,
)
from device_profiles.schema import Profile
from edge_runtime.errors import (
    AudioError,
    BundleError,
    CheckpointError,
    DependencyError,
    ProfileError,
    UsageError,
)

# The first line, by which a unit is known as one that may be replaced or removed.
MARK = "# Written by boardvoice service install; changes are lost when it is installed again."
# Name of the token among the service's credentials; `serve` looks for it.
TOKEN_CREDENTIAL = "boardvoice.token"
START_S = 900
WATCHDOG_S = 60
# Trying again changes nothing here: somebody has to.
_NOT_AGAIN = (
    UsageError, AudioError, BundleError, CheckpointError, DependencyError, ProfileError,
)  # fmt: skip
# Interrupted or terminated while the libraries were loaded.
_ENDED_AS_ASKED = "130 143"
_BACK_OFF_SINCE = 254


@dataclass(frozen=True)
class ServicePlan:
    """What the unit says.

    Attributes:
        name: Name of the unit, without its ending.
        command: The server's command, the program first.
        bundle: Its bundle.
        profile: The board's.
        reasons: Why that profile.
        user_scope: Whether it is a user's own service.
        bounds: Limits of its memory.
        state: The folder that it writes; None for one that systemd makes.
        owner: The user that owns `state`.
        groups: Groups that own the devices and exist here.
        shown: What it reads below folders that are covered for it.
        token_file: File with the token, which only root has to be able to read.
        loopback: Whether only this machine may connect.
        grace_s: Time that runs get to end.
        systemd: Version of systemd; None takes the newest.
    """

    name: str
    command: tuple[str, ...]
    bundle: Path
    profile: Profile
    reasons: tuple[str, ...]
    user_scope: bool = False
    bounds: MemoryBounds | None = None
    state: Path | None = None
    owner: str = ""
    groups: tuple[str, ...] = ()
    shown: tuple[Path, ...] = ()
    token_file: Path | None = None
    loopback: bool = True
    grace_s: float = 10.0
    systemd: int | None = None


def unit_text(plan: ServicePlan) -> str:
    """The unit file.

    Raises:
        UsageError: A path that no unit can hold.
    """
    why = "".join(c if c.isprintable() else " " for c in "; ".join(plan.reasons))
    head = f"{MARK}\n# Profile {plan.profile.name} ({plan.profile.title}): {why}\n"
    service = [
        *_start(plan),
        *_again(plan),
        *_who(plan),
        *_memory(plan),
        *sandbox.everywhere(plan.profile),
    ]
    if not plan.user_scope:
        service += sandbox.system_only(
            plan.profile, shown=plan.shown, written=plan.state, loopback=plan.loopback
        )
    target = "default.target" if plan.user_scope else "multi-user.target"
    parts = [
        section("Unit", _order(plan)),
        section("Service", service),
        section("Install", [("WantedBy", target)]),
    ]
    return head + "\n" + "\n".join(parts)


def _order(plan: ServicePlan) -> list[Entry]:
    wait = ["sound.target"]
    entries: list[Entry] = [
        ("Description", f'boardvoice with the voice "{plan.bundle.name}"'.replace("%", "%%"))
    ]
    if not plan.user_scope:
        network = "network.target" if plan.loopback else "network-online.target"
        entries += [] if plan.loopback else [("Wants", network)]
        wait.append(network)
    mounted = [plan.bundle, Path(plan.command[0]), *([plan.state] if plan.state else [])]
    entries += [("After", " ".join(wait)), ("RequiresMountsFor", paths(mounted))]
    # What fails for good is given up after some minutes; see docs/service.md.
    return [*entries, ("StartLimitIntervalSec", "15min"), ("StartLimitBurst", "20")]


def _start(plan: ServicePlan) -> list[Entry]:
    return [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("ExecStart", command_line(plan.command)),
        ("", "Preparing the bundle asks for more time, graph by graph."),
        ("TimeoutStartSec", str(START_S)),
        ("TimeoutStopSec", str(round(plan.grace_s) + 10)),
        ("", "Fed while the server answers itself and no run hangs."),
        ("WatchdogSec", str(WATCHDOG_S)),
    ]


def _again(plan: ServicePlan) -> list[Entry]:
    never = sorted({error.exit_code for error in _NOT_AGAIN})
    entries: list[Entry] = [("Restart", "on-failure")]
    if plan.systemd is None or plan.systemd >= _BACK_OFF_SINCE:
        entries += [("RestartSec", "1"), ("RestartSteps", "6"), ("RestartMaxDelaySec", "60")]
    else:
        entries += [("", f"Longer and longer pauses take systemd {_BACK_OFF_SINCE}.")]
        entries += [("RestartSec", "15")]
    return [
        *entries,
        ("", "Exit codes that somebody has to see to: docs/errors.md."),
        ("RestartPreventExitStatus", " ".join(map(str, never))),
        ("SuccessExitStatus", _ENDED_AS_ASKED),
    ]


def _who(plan: ServicePlan) -> list[Entry]:
    own = f"{plan.name}-service" if plan.user_scope else plan.name
    entries: list[Entry] = []
    if plan.state is not None:
        folder = str(plan.state).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        if not plan.user_scope:
            entries += [("User", plan.owner)]
        places = {"BOARDVOICE_STATE": folder, "XDG_CACHE_HOME": f"{folder}/cache"}
    else:
        if not plan.user_scope:
            entries += [("DynamicUser", "yes")]
        entries += [
            ("StateDirectory", own), ("StateDirectoryMode", "0700"),
            ("CacheDirectory", own), ("CacheDirectoryMode", "0700"),
        ]  # fmt: skip
        folder = f"%S/{own}"
        places = {"BOARDVOICE_STATE": folder, "XDG_CACHE_HOME": f"%C/{own}"}
    if not plan.user_scope:
        places["HOME"] = folder
    entries += [("Environment", environment(*place)) for place in places.items()]
    if plan.groups and not plan.user_scope:
        entries.append(("SupplementaryGroups", " ".join(plan.groups)))
    if plan.token_file is not None:
        entries.append(
            ("LoadCredential", f"{TOKEN_CREDENTIAL}:{rest_of_line(str(plan.token_file))}")
        )
    return entries


def _memory(plan: ServicePlan) -> list[Entry]:
    entries: list[Entry] = []
    if plan.bounds is not None:
        entries += [
            ("MemoryHigh", str(plan.bounds.high)), ("MemoryMax", str(plan.bounds.most)),
        ]  # fmt: skip
    if plan.profile.memory.oom_score_adj is not None:
        entries.append(("OOMScoreAdjust", str(plan.profile.memory.oom_score_adj)))
    return [*entries, ("TasksMax", "256")]


def is_own(text: str) -> bool:
    """Whether a unit's text is one of ours."""
    return text.startswith(MARK)
