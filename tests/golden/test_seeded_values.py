"""Golden inputs are the same bits everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from edge_runtime.golden.golden_file import GoldenOutput, InputRecipe
from edge_runtime.golden.seeded import seeded


def test_values_are_the_same_bits_as_ever() -> None:
    # SplitMix64 of seed 0 begins with e220a8397b1dcdaf, 6e789e6aa1b965f4.
    words = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4)
    sums = [sum((word >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) for word in words]
    expected = (np.array(sums) - 131070).astype(np.float32) / np.float32(65536 / 3**0.5)
    assert seeded(0, (2,)).tobytes() == expected.astype(np.float32).tobytes()


def test_values_are_nearly_normal() -> None:
    values = seeded(3, (100, 1000), scale=2.0)
    assert values.dtype == np.float32
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 2) < 0.03
    assert np.abs(values).max() <= 7


def test_seeds_differ_and_shapes_only_fold() -> None:
    assert not np.array_equal(seeded(1, (50,)), seeded(2, (50,)))
    assert np.array_equal(seeded(1, (50,)).reshape(5, 10), seeded(1, (5, 10)))


def test_rows_beyond_those_filled_are_zeros() -> None:
    array = InputRecipe(shape=(3, 4), seed=1, filled=1).array()
    assert array[0].all()
    assert not array[1:].any()


@pytest.mark.parametrize(
    "wrong", [{"shape": (1 << 30,)}, {"shape": (2,), "fill": "values", "values": (1.0,)}]
)
def test_recipes_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        InputRecipe(**wrong)


def test_outputs_keep_spread_samples_and_refuse_torn_ones() -> None:
    array = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    output = GoldenOutput.of(array, most=1000)
    assert np.array_equal(output.values, np.arange(0, 3000, 3))
    with pytest.raises(ValidationError, match="bytes of data"):
        GoldenOutput(shape=output.shape, stride=2, data=output.data, norm=1.0)
