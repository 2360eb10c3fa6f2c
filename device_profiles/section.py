"""What every part of a profile has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen mapping of known keys, nothing converted: YAML reads "on" as true."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
