"""`golden.json`: inputs by recipe, and samples of what came out where the bundle was exported."""

from __future__ import annotations

import base64
import binascii
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edge_runtime.bundle import Bundle, describe_errors
from edge_runtime.errors import BundleError
from edge_runtime.golden.seeded import seeded
from edge_runtime.kv_cache import KV_DTYPES, KVType

GOLDEN = "golden.json"
# A damaged file must not make this process allocate gigabytes.
_MOST_VALUES = 1 << 24
_DTYPES: dict[str, npt.DTypeLike] = {"f32": np.float32, "i32": np.int32}

Shape = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)]
FloatArray = npt.NDArray[np.float32]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _bounded(shape: tuple[int, ...]) -> None:
    if math.prod(shape) > _MOST_VALUES:
        raise ValueError(f"shape {list(shape)} is larger than any golden vector")


class InputRecipe(_Frozen):
    """How to make one input.

    Attributes:
        shape: Of the array.
        dtype: Of the array.
        fill: ``seeded`` values, ``values`` as they stand here, or zeros.
        seed: Of seeded values.
        scale: Their standard deviation.
        filled: Leading rows of the first axis that are filled, the others are zeros; None for all.
        values: As many as the shape holds.
    """

    shape: Shape
    dtype: Literal["f32", "i32"] = "f32"
    fill: Literal["seeded", "values", "zeros"] = "seeded"
    seed: int = Field(0, ge=0, lt=2**63)
    scale: float = 1.0
    filled: int | None = Field(None, ge=0)
    values: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> InputRecipe:
        _bounded(self.shape)
        if self.fill == "values" and len(self.values) != math.prod(self.shape):
            raise ValueError(f"{len(self.values)} values for shape {list(self.shape)}")
        return self

    def array(self) -> npt.NDArray[Any]:
        """The input."""
        if self.fill == "values":
            return np.array(self.values).reshape(self.shape).astype(_DTYPES[self.dtype])
        if self.fill == "zeros":
            return np.zeros(self.shape, _DTYPES[self.dtype])
        array = seeded(self.seed, self.shape, self.scale)
        if self.filled is not None:
            array[self.filled :] = 0
        return array.astype(_DTYPES[self.dtype])


class Carried(_Frozen):
    """Arrays that go from one run to the next, zeros at first.

    Attributes:
        input: Their names as inputs; ``{}`` is their number.
        output: Their names as outputs.
        shapes: Shape of each.
        dtype: Storage.
        in_place: Whether input and output are one array.
    """

    input: str
    output: str
    shapes: tuple[Shape, ...]
    dtype: KVType = "f32"
    in_place: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Carried:
        for shape in self.shapes:
            _bounded(shape)
        return self

    def arrays(self) -> list[npt.NDArray[Any]]:
        """Fresh ones."""
        return [np.zeros(shape, KV_DTYPES[self.dtype]) for shape in self.shapes]

    def names(self) -> list[tuple[str, str]]:
        """Input and output name of each."""
        return [
            (self.input.replace("{}", str(index)), self.output.replace("{}", str(index)))
            for index in range(len(self.shapes))
        ]


class GoldenOutput(_Frozen):
    """What came out of one output.

    Attributes:
        shape: Of the whole output.
        stride: Every so many values of it are kept here.
        data: Those, f32, little-endian, in base64.
        norm: Root of the sum of squares of the whole output.
    """

    shape: Shape
    stride: int = Field(ge=1)
    data: str
    norm: float = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _fits(self) -> GoldenOutput:
        _bounded(self.shape)
        try:
            found = len(base64.b64decode(self.data, validate=True))
        except binascii.Error as error:
            raise ValueError(f"data is not base64 ({error})") from error
        if found != 4 * -(-math.prod(self.shape) // self.stride):
            raise ValueError(f"{found} bytes of data for shape {list(self.shape)}")
        return self

    @staticmethod
    def of(array: FloatArray, most: int = 1024) -> GoldenOutput:
        """Keep evenly spread samples of an output."""
        stride = max(1, -(-array.size // most))
        data = samples(array, stride).astype("<f4").tobytes()
        return GoldenOutput(
            shape=array.shape,
            stride=stride,
            data=base64.b64encode(data).decode("ascii"),
            norm=norm(array),
        )

    @property
    def values(self) -> FloatArray:
        """The samples."""
        return np.frombuffer(base64.b64decode(self.data), "<f4").astype(np.float32)


class GoldenRun(_Frozen):
    """One run of a graph.

    Attributes:
        component: What it shows.
        inputs: By name; carried ones are not here.
        outputs: By name, likewise.
        least_snr_db: A device whose signal-to-noise ratio is lower computes something else.
    """

    component: str
    inputs: dict[str, InputRecipe]
    outputs: dict[str, GoldenOutput]
    least_snr_db: float = Field(allow_inf_nan=False)


class GoldenGraph(_Frozen):
    """Runs of one graph, one after another.

    Attributes:
        graph: Its name.
        kv_dtype: Storage of its KV cache, if it has one.
        carried: What goes from one run to the next.
        runs: The runs.
    """

    graph: str
    kv_dtype: KVType | None = None
    carried: tuple[Carried, ...] = ()
    runs: tuple[GoldenRun, ...]


class GoldenFile(_Frozen):
    """The whole file.

    Attributes:
        format: Version of this layout.
        computed_by: What computed it.
        graphs: The graphs.
    """

    format: Literal[1] = 1
    computed_by: str
    graphs: tuple[GoldenGraph, ...]

    @staticmethod
    def of(bundle: Bundle) -> GoldenFile | None:
        """The golden vectors of a bundle; None if it was exported before there were any.

        Raises:
            BundleError: The file is torn or of another version.
        """
        if GOLDEN not in bundle.manifest.files:
            return None
        file: Path = bundle.path(GOLDEN)
        try:
            return GoldenFile.model_validate_json(file.read_bytes())
        except OSError as error:
            raise _unreadable(file, error.strerror or str(error)) from error
        except ValidationError as error:
            raise _unreadable(file, describe_errors(error)) from error

    def text(self) -> str:
        """The file's content."""
        return self.model_dump_json(exclude_defaults=False) + "\n"


def samples(array: npt.NDArray[Any], stride: int) -> FloatArray:
    """Every so many values of an array in C order."""
    return array.reshape(-1)[::stride].astype(np.float32)


def norm(array: npt.NDArray[Any]) -> float:
    """Root of the sum of squares."""
    return float(np.linalg.norm(array.reshape(-1).astype(np.float64)))


def _unreadable(file: Path, reason: str) -> BundleError:
    return BundleError(f"{file}: {reason}.", remedy="Export or copy the bundle again.")
