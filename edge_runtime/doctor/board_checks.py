"""The board and its profile."""

from __future__ import annotations

from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.scene import Scene
from edge_runtime.requirements import older


def check_board(scene: Scene) -> list[Finding]:
    """What board this is taken for, and whether the profile's minimum versions are there."""
    facts, profile = scene.facts, scene.profile
    board = facts.tree.model or facts.cpu.model or facts.machine
    where = f" in {facts.container}" if facts.container else ""
    hidden = facts.container and not facts.tree.source and facts.machine != "x86_64"
    findings = [
        Finding(
            "profile",
            "warn" if hidden and "generic" in profile.name else "ok",
            f"{profile.name} for {board}{where}",
            "; ".join(scene.found.reasons),
            "Containers hide the device tree: name the board with --profile or BOARDVOICE_PROFILE."
            if hidden and "generic" in profile.name
            else "",
        )
    ]
    needed = profile.requires.l4t
    if needed and facts.l4t and older(facts.l4t, needed):
        findings.append(
            Finding(
                "Jetson Linux",
                "warn",
                f"{facts.l4t}, the profile wants {needed} or newer",
                facts.l4t_source,
                "Update JetPack; until then the CPU does all the work.",
            )
        )
    return findings
