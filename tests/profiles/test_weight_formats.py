"""Choosing weight formats: which kinds a selector means, which choice wins, what is refused."""

from __future__ import annotations

import itertools

import pytest

from device_profiles.weight_formats import LayerKind, WeightFormat, chosen_formats


def names(selector: str) -> set[str]:
    return {kind.value for kind in chosen_formats({selector: "f32"})}


def test_a_selector_means_a_kind_the_start_of_its_name_or_any_part() -> None:
    assert names("flow.down") == {"flow.down"}
    assert names("flow") == {"flow.qkv", "flow.output", "flow.gate_up", "flow.down"}
    assert names("lm.*.down") == {"lm.base.down", "lm.residual.down"}
    assert names("*.down") == {"patch_encoder.down", "flow.down"}
    assert names("*") == {kind.value for kind in LayerKind}
    assert names("lm") == {kind.value for kind in LayerKind if kind.value.startswith("lm.")}


def test_the_choice_that_names_most_parts_wins_in_any_order() -> None:
    choices = {"*": "f16", "lm": "int4-32", "lm.*.down": "int8-128", "lm.base.down": "int8"}
    for order in itertools.permutations(choices.items()):
        found = chosen_formats(dict(order))
        assert found[LayerKind.FLOW_DOWN] is WeightFormat.F16
        assert found[LayerKind.LM_BASE_QKV] is WeightFormat.INT4_32
        assert found[LayerKind.LM_RESIDUAL_DOWN] is WeightFormat.INT8_128
        assert found[LayerKind.LM_BASE_DOWN] is WeightFormat.INT8


def test_between_equals_the_last_one_wins() -> None:
    assert (
        chosen_formats({"lm.*.down": "int8", "lm.base": "f32"})[LayerKind.LM_BASE_DOWN]
        is WeightFormat.F32
    )
    assert (
        chosen_formats({"lm.base": "f32", "lm.*.down": "int8"})[LayerKind.LM_BASE_DOWN]
        is WeightFormat.INT8
    )


@pytest.mark.parametrize("selector", ["", "lms", "lm.", "lm.base.down.x", "down", "LM", "lm..down"])
def test_a_selector_that_means_nothing_is_told_which_kinds_there_are(selector: str) -> None:
    with pytest.raises(ValueError, match="no layer kind is called") as caught:
        chosen_formats({selector: "f32"})
    assert all(kind.value in str(caught.value) for kind in LayerKind)


@pytest.mark.parametrize("kind", LayerKind)
def test_a_format_a_kind_cannot_have_is_told_with_those_it_can(kind: LayerKind) -> None:
    for name in ["int3", "int4", "INT8", "", *(f.value for f in WeightFormat)]:
        if name in [each.value for each in kind.formats]:
            assert chosen_formats({kind.value: name})[kind].value == name
            continue
        with pytest.raises(ValueError, match=f"{kind.value} cannot be {name!r}") as caught:
            chosen_formats({kind.value: name})
        assert all(each.value in str(caught.value) for each in kind.formats)


def test_a_format_says_its_bits_and_block() -> None:
    found = {each.value: (each.bits, each.block) for each in WeightFormat}
    assert found == {
        "f32": (32, 0), "f16": (16, 0), "int8": (8, 0), "int8-rows": (8, 0), "int8-32": (8, 32),
        "int8-128": (8, 128), "int4-32": (4, 32), "int4-128": (4, 128),
        "int4-32-sym": (4, 32), "int4-128-sym": (4, 128),
    }  # fmt: skip
