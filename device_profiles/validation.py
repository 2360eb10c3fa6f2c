"""Turns layers of files into a profile; what is wrong is named by file, key and what is allowed."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from device_profiles.hardware import MatchSection
from device_profiles.layers import ProfileFile, ProfileLayers, ProfileLoadError
from device_profiles.schema import Profile

_Place = tuple[int | str, ...]


def validated(layers: ProfileLayers) -> Profile:
    """The profile that a file and what it inherits from make.

    Raises:
        ProfileLoadError: An unknown key, a wrong value or an impossible combination.
    """
    try:
        return Profile.model_validate(layers.merged())
    except ValidationError as error:
        first = layers.files[0].source
        details = []
        for item in error.errors():
            source = layers.source_of(_in_file(item["loc"]))
            via = "" if source == first else f" (which {first} extends)"
            details.append(f"{source}{via}: {_describe(item['loc'], item['type'], item['msg'])}")
        raise ProfileLoadError("; ".join(details)) from error


def match_of(file: ProfileFile) -> MatchSection:
    """How a file wants to be recognized.

    Raises:
        ProfileLoadError: An unknown key or a wrong value.
    """
    try:
        return MatchSection.model_validate(file.data.get("match", {}))
    except ValidationError as error:
        details = [
            _describe(("match", *item["loc"]), item["type"], item["msg"]) for item in error.errors()
        ]
        raise ProfileLoadError(f"{file.source}: {'; '.join(details)}") from error


def _describe(place: _Place, kind: str, message: str) -> str:
    key = ".".join(map(str, place))
    # A check of the whole profile names its own key.
    message = message.removeprefix("Value error, ")
    if kind != "extra_forbidden":
        return f"{key}: {message}" if key else message
    return f"{key}: no such key; there are {', '.join(_keys(place[:-1]))}"


def _in_file(place: _Place) -> _Place:
    """A place up to its first list: lists are replaced as a whole, never merged."""
    for index, part in enumerate(place):
        if isinstance(part, int):
            return place[:index]
    return place


def _keys(place: _Place) -> list[str]:
    """Keys that may stand at a place of a profile."""
    models: list[type[BaseModel]] = [Profile]
    for part in place:
        if isinstance(part, int):
            continue
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        if fields:
            models = [model for field in fields for model in _models(field.annotation)]
        else:
            # A place names the member of a union as well, by the value of its "name".
            named = [m for m in models if "name" in m.model_fields]
            models = [m for m in named if part in get_args(m.model_fields["name"].annotation)]
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Annotated, Union, types.UnionType, tuple, Mapping):
        return [model for part in get_args(annotation) for model in _models(part)]
    return []
