"""Writes docs/boards.md from the profiles: ``python docs/make_boards.py`` from the root."""

from __future__ import annotations

from pathlib import Path

from device_profiles.figures import Figure
from device_profiles.layers import ProfileStore
from device_profiles.schema import Profile
from device_profiles.validation import validated

TARGET = Path(__file__).parent / "boards.md"

_HEAD = """\
# Boards

Made from `device_profiles/boards/*.yaml` by `python docs/make_boards.py`. `boardvoice profiles
explain` says which one fits the board at hand, and why.

*Verified* means that this package was run on such hardware; the other profiles are made from
public documents and reports. **CUDA and TensorRT were not verified on hardware**: their paths ran
with stand-ins on a CPU only. There is no NPU back end yet. A provider that does not work on the
board is not used ([how that is found](providers.md)); the log says so once, and every result in its
`warnings`.

"""
_BOARD_COLUMNS = (
    "profile", "board", "chip", "providers", "flow (graphs)", "weights", "KV", "threads",
    "reserve MiB", "verified",
)  # fmt: skip

_FIGURES = """
## Figures

What [`boardvoice plan`](plan.md) divides by. *m* was measured by somebody, the others are from data
sheets or arithmetic, *p* is a peak of the hardware; a figure with */thread* is for one thread.
Sources stand in the YAML, beside each figure.

"""
_FIGURE_COLUMNS = (
    "profile", "memory GB/s", "GPU memory GB/s", "CPU f32 GFLOP/s", "CPU int8 GOP/s",
    "CPU int8 in blocks GOP/s", "CPU int4 in blocks GOP/s", "GPU f32 GFLOP/s",
    "GPU int8 TOP/s", "NPU int8 TOP/s", "memory GiB",
)  # fmt: skip

_NOTES = """
## What to know
"""


def boards_page() -> str:
    """The page as text."""
    store = ProfileStore.shipped()
    profiles = [validated(store.layers(file)) for file in store.candidates()]
    notes: dict[tuple[str, ...], list[str]] = {}
    for profile in profiles:
        if profile.notes:
            notes.setdefault(profile.notes, []).append(profile.name)
    return (
        _HEAD
        + _header(_BOARD_COLUMNS)
        + "".join(_board(profile) for profile in profiles)
        + _FIGURES
        + _header(_FIGURE_COLUMNS)
        + "".join(_figures(profile) for profile in profiles)
        + _NOTES
        + "".join(
            f"\n{', '.join(names)}\n\n" + "".join(f"- {line}\n" for line in lines)
            for lines, names in notes.items()
        )
    )


def _header(columns: tuple[str, ...]) -> str:
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"


def _board(profile: Profile) -> str:
    providers = ", ".join(provider.name for provider in profile.providers)
    cells = (
        profile.name, profile.title, profile.soc, providers,
        f"{profile.flow.place} ({profile.flow.graphs})", profile.weights.plan, profile.kv.dtype,
        str(profile.runtime.threads), str(profile.memory.reserve_mib),
        _verified(profile),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _verified(profile: Profile) -> str:
    if profile.verified:
        return f"yes: {profile.verified}"
    names = {"cuda": "CUDA", "tensorrt": "TensorRT"}
    wanted = [names[entry.name] for entry in profile.providers if entry.name in names]
    return "no; not verified on hardware: " + ", ".join(wanted) if wanted else "no"


def _figures(profile: Profile) -> str:
    figures = profile.figures
    cells = [_figure(getattr(figures, key)) for key in type(figures).model_fields]
    return f"| {' | '.join([profile.name, *cells])} |\n"


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return ""
    thread = "/thread" if figure.per == "thread" else ""
    mark = " m" if figure.measured else " p" if figure.peak else ""
    return f"{figure.value:g}{thread}{mark}"


if __name__ == "__main__":
    TARGET.write_text(boards_page(), encoding="utf-8")
