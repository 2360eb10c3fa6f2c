"""Types of the KV cache as tests are parametrised with them."""

from __future__ import annotations

import numpy as np
import pytest

from device_profiles.catalog import load_profile
from device_profiles.schema import KvSection, Profile
from edge_runtime.backends.int8_cache import why_no_int8_cache
from edge_runtime.backends.ort import OrtBackend

_MISSING = why_no_int8_cache(OrtBackend(threads=1, spinning=False))

needs_int8 = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
INT8 = pytest.param("int8", marks=needs_int8)
KV_TYPES = ["f32", "f16", INT8]


def kv_profile(dtype: str = "f32", **section: int) -> Profile:
    """The x86 profile with this KV section."""
    return load_profile("generic-x86-64").model_copy(
        update={"kv": KvSection.model_validate({"dtype": dtype, **section})}
    )


def poison(array: np.ndarray) -> None:
    """Fill with what would show in any result: NaN, or the end of the range where there is none."""
    array.fill(127 if array.dtype == np.int8 else np.nan)
