"""Which weight format each kind of layer gets: `--weights` and `--format` as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

from device_profiles.weight_formats import LayerKind, PlanName, WeightFormat, chosen_formats
from edge_runtime.errors import UsageError

# What comes before a codec's quantizer stays exact: errors there are other tokens. In blocks the
# rest would be no faster, and profiles for old runtimes could not have it.
_CODEC = {
    "codec.content": "f16",
    "codec.wave": "int8-rows",
    "codec.global": "int8-rows",
    "codec.head": "f32",
}
# Format by selector; docs/weight-formats.md has the figures behind them.
_PLANS: Mapping[PlanName, Mapping[str, str]] = {
    "f32": {"*": "f32"},
    "f16": {"*": "f16"},
    "int8": {
        "lm": "int8-128",
        # What comes before the scalar quantizer: errors there flip its steps.
        "lm.base": "int8-32",
        "patch_encoder": "int8-32",
        "flow": "int8",
        # What gated activations hold differs from row to row by orders of magnitude.
        "flow.down": "int8-128",
        "head": "f32",
        "embedding": "f16",
        **_CODEC,
    },
    # Flow error adds up over the solver's steps, so int4 stops at the LM.
    "int4": {
        "lm": "int4-32",
        "patch_encoder": "int8-32",
        "flow": "int8",
        "flow.down": "int8-128",
        "head": "f32",
        "embedding": "f16",
        **_CODEC,
    },
}


@dataclass(frozen=True)
class WeightPlan:
    """Format per layer kind.

    Attributes:
        name: The plan it started from.
        formats: A format for every kind.
    """

    name: PlanName
    formats: Mapping[LayerKind, WeightFormat]

    def __getitem__(self, kind: LayerKind) -> WeightFormat:
        return self.formats[kind]

    @staticmethod
    def named(name: PlanName, choices: Mapping[str, str] | None = None) -> WeightPlan:
        """The plan behind a `--weights` value, changed by choices.

        Args:
            name: Plan to start from.
            choices: Format by selector; see `chosen_formats`.

        Raises:
            UsageError: An unknown plan, kind or format; what is allowed is named.
        """
        if name not in _PLANS:
            allowed = ", ".join(get_args(PlanName))
            raise UsageError(f"weights is {name!r}.", remedy=f"It must be one of {allowed}.")
        formats = chosen_formats(_PLANS[name])
        try:
            formats |= chosen_formats(choices or {})
        except ValueError as error:
            raise UsageError(f"Weight format: {error}.") from error
        return WeightPlan(name, MappingProxyType(formats))

    def as_text(self) -> dict[str, str]:
        """Format by kind, as the manifest records it."""
        return {kind.value: self.formats[kind].value for kind in LayerKind}
