"""Rockchip's NPU through rknn-toolkit-lite2: one context, every code that it returns looked at.

What the package checks itself and what it does not was seen with its own aarch64 wheel, see
docs/npu_lite_qemu.md.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import re
import sys
import weakref
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from device_profiles.combinations import npu_target
from device_profiles.probes.npu import NpuFacts
from edge_runtime.backends.live_session import first_line
from edge_runtime.npu.library import LIBRARY, OLDEST_DRIVER, library_version
from edge_runtime.npu.one_thread import OneThread
from edge_runtime.npu.rknn_file import RknnFile, holds_text
from edge_runtime.npu.runner import NpuError
from edge_runtime.requirements import older

FloatArray = npt.NDArray[np.float32]
T = TypeVar("T")
Shape = tuple[int, ...]

_PACKAGE = "rknn-toolkit-lite2"
# Reading hundreds of megabytes from a memory card and copying them to the NPU.
_START_LIMIT_S = 120.0
_STOP_LIMIT_S = 5.0
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_INSTALL = f"Install it: pip install {_PACKAGE} (for Python 3.8 to 3.12 on aarch64)."
_UPDATE = "Copy a newer librknnrt.so from rknn-toolkit2 to /usr/lib."


@dataclass(frozen=True)
class RknnModel:
    """A model file and what it must be.

    Attributes:
        file: The ``.rknn`` file.
        inputs: Shape by name, in the order of the file's inputs.
        output: Shape of its one output.
        mark: Text that the conversion wrote into it; empty where none is asked for.
        soc: Chip of this board; empty where it is not known.
    """

    file: Path
    inputs: tuple[Shape, ...]
    output: Shape
    mark: str = ""
    soc: str = ""


@dataclass(frozen=True)
class RknnSettings:
    """How to run it.

    Attributes:
        cores: NPU cores of the context, as `FlowSection.npu_cores` names them.
        limit_s: Longest that one run may take.
        least_driver: Oldest driver that is taken.
        least_library: Oldest librknnrt that is taken; the model's toolkit asks for its own too.
        root: Where ``usr``, ``sys`` and ``dev`` are.
    """

    cores: str = "auto"
    limit_s: float = 2.0
    least_driver: str = OLDEST_DRIVER
    least_library: str = ""
    root: Path = Path("/")


class RknnRunner:
    """One model in one context of the NPU. Runs are made one after another in a thread of its own.

    Args:
        model: What to load.
        settings: How.

    Raises:
        NpuError: It cannot be used; `NpuError.reason` says which step failed.
    """

    def __init__(self, model: RknnModel, settings: RknnSettings) -> None:
        self._model, self._settings = model, settings
        lite_class = _lite_class()
        toolkit = _check_files(model, settings)
        self._context = context = _Context(OneThread("boardvoice-npu"))
        # Runs when this object goes, and at the interpreter's end.
        self._release = weakref.finalize(self, _release, context)
        try:
            start = context.thread.submit(lambda: _start(context, lite_class, model, settings))
            library, driver = _result(context, start, _START_LIMIT_S, "init")
            _check_versions(library, driver, toolkit, settings)
        except BaseException:
            self.close()
            raise
        self._versions = {
            _PACKAGE: _package_version(), "librknnrt": library, "driver": driver,
            "toolkit": toolkit,
        }  # fmt: skip

    def versions(self) -> dict[str, str]:
        """Versions of the package, librknnrt, the driver, and the toolkit that made the model."""
        return dict(self._versions)

    def submit(self, *inputs: FloatArray) -> Future[FloatArray]:
        """Start a run; the caller may go on meanwhile, but must leave the inputs alone.

        Args:
            inputs: f32, C-contiguous, in the model's shapes.
        """
        for array, shape in zip(inputs, self._model.inputs, strict=True):
            # The package does not look at shapes, and gives up on other types.
            if array.shape != shape or array.dtype != np.float32:
                raise NpuError(
                    f"An input of the NPU is {array.dtype}{list(array.shape)}, not "
                    f"float32{list(shape)}.", reason="shape", remedy="Report this.",
                )  # fmt: skip
        context, output = self._context, self._model.output
        return context.thread.submit(lambda: _infer(context, list(inputs), output))

    def run(self, *inputs: FloatArray) -> FloatArray:
        """Run once and wait. The result is the caller's own.

        Raises:
            NpuError: The run failed or took longer than it may.
        """
        return _result(self._context, self.submit(*inputs), self._settings.limit_s, "run")

    def close(self) -> None:
        """Release the context, unless a run hangs in it; later calls do nothing."""
        self._release()


@dataclass
class _Context:
    """The package's object, used in one thread only.

    Attributes:
        thread: That thread.
        lite: The object, once there is one.
        code: What ``rknn_run`` returned last.
        stuck: Whether a call never came back.
    """

    thread: OneThread
    lite: Any = None
    code: int = 0
    stuck: bool = False


def _start(
    context: _Context, lite_class: Any, model: RknnModel, settings: RknnSettings
) -> tuple[str, str]:
    """Load and start it; versions of library and driver."""
    lite = context.lite = lite_class(verbose=False)
    if lite.load_rknn(str(model.file)) != 0:
        raise NpuError(
            f"{_PACKAGE} cannot read {model.file}.", reason="load",
            remedy="Copy or convert the model again.",
        )  # fmt: skip
    mask = getattr(lite_class, f"NPU_CORE_{settings.cores.upper()}")
    # It prints some of its advice, where our own results go.
    with contextlib.redirect_stdout(sys.stderr):
        code = lite.init_runtime(core_mask=mask)
    # It has gone to the NPU's memory; this copy is as large.
    lite.rknn_data = None
    library, driver = _sdk_versions(lite)
    if code != 0 and library:
        # A context that answers was made: it was its core mask that was refused. It would run, on
        # cores of its own choice.
        raise NpuError(
            f"The NPU does not take the cores {settings.cores}.", reason="core-mask",
            remedy="Set flow.npu_cores to auto in the profile.",
        )  # fmt: skip
    if code != 0:
        raise NpuError(
            "librknnrt cannot start the model; the reason is on standard error.", reason="init",
            remedy="See 'boardvoice doctor': NPU driver, librknnrt, NPU memory (4 GiB in all).",
        )  # fmt: skip
    _watch_code(context)
    return library, driver


def _watch_code(context: _Context) -> None:
    """Keep the code of ``rknn_run``: the package ignores it, and returns the outputs before."""
    runtime = context.lite.rknn_runtime
    plain = runtime.run

    def run(*arguments: Any, **options: Any) -> Any:
        returned = plain(*arguments, **options)
        first = returned[0] if isinstance(returned, (list, tuple)) else returned
        context.code = int(first or 0)
        return returned

    runtime.run = run


def _infer(context: _Context, inputs: list[FloatArray], output: Shape) -> FloatArray:
    context.code = 0
    outputs = context.lite.inference(inputs=inputs)
    if context.code != 0:
        raise NpuError(f"A run on the NPU failed with code {context.code}.", reason="run")
    if outputs is None:
        raise NpuError(
            "The NPU took no inputs or gave no outputs; the reason is on standard error.",
            reason="run",
        )
    found = [np.asarray(each) for each in outputs]
    if len(found) != 1 or found[0].size != int(np.prod(output)):
        shapes = ", ".join(str(list(each.shape)) for each in found) or "nothing"
        raise NpuError(
            f"The NPU gave {shapes}, not {list(output)}.", reason="outputs",
            remedy="Convert the model again.",
        )  # fmt: skip
    # Copied: whether these are views of buffers that the next run overwrites is the package's.
    return np.array(found[0].reshape(output), np.float32)


def _result(context: _Context, future: Future[T], limit_s: float, reason: str) -> T:
    if context.stuck:
        raise NpuError("An earlier run hangs in the NPU's driver.", reason="timeout")
    finished, _ = wait([future], limit_s)
    if not finished:
        # It cannot be called back; whoever touches the context now may hang as well.
        context.stuck = True
        raise NpuError(
            f"The NPU did not answer within {limit_s:g} s.", reason="timeout",
            remedy="Restart the board if it happens again.",
        )  # fmt: skip
    try:
        return future.result()
    except NpuError:
        raise
    except Exception as error:  # the package raises plain Exception, ctypes its own
        raise NpuError(
            f"{_PACKAGE} failed: {type(error).__name__}: {first_line(error)}.", reason=reason
        ) from error


def _release(context: _Context) -> None:
    lite, context.lite = context.lite, None
    if lite is not None and not context.stuck:
        wait([context.thread.submit(lite.release)], _STOP_LIMIT_S)
    context.thread.close()


def _lite_class() -> Any:
    try:
        return importlib.import_module("rknnlite.api").RKNNLite
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "rknnlite":
            raise NpuError(
                f"{_PACKAGE} cannot be imported: {error}.", reason="no-package", remedy=_INSTALL
            ) from error
        raise NpuError(
            f"{_PACKAGE} is not installed.", reason="no-package", remedy=_INSTALL
        ) from error
    except (ImportError, OSError, AttributeError) as error:
        raise NpuError(
            f"{_PACKAGE} cannot be imported: {error}.", reason="no-package", remedy=_INSTALL
        ) from error


def _check_files(model: RknnModel, settings: RknnSettings) -> str:
    """Everything that can be told before the NPU is touched; the version of the model's toolkit."""
    facts = NpuFacts.read(settings.root)
    if facts.driver == "rocket":
        raise NpuError(
            "The kernel drives the NPU with rocket, which Rockchip's library does not work with.",
            reason="no-driver", remedy="Boot a vendor kernel (5.10 or 6.1).",
        )  # fmt: skip
    if facts.version and older(facts.version, settings.least_driver):
        raise _old_driver(facts.version, settings)
    library = settings.root / LIBRARY
    if not library.exists():
        raise NpuError(
            f"librknnrt is not installed as /{LIBRARY}.", reason="no-library", remedy=_UPDATE
        )
    found = RknnFile.read(model.file)
    if found is None:
        raise NpuError(
            f"{model.file} is no model for the NPU, or torn.", reason="model",
            remedy="Copy or convert it again.",
        )  # fmt: skip
    if model.soc and found.targets and npu_target(model.soc) not in found.targets:
        raise NpuError(
            f"{model.file.name} was made for {', '.join(found.targets)}, this is {model.soc}.",
            reason="platform", remedy="Export the bundle with this board's profile.",
        )  # fmt: skip
    if model.mark and not holds_text(model.file, model.mark):
        raise NpuError(
            f"{model.file.name} was not converted from this bundle's weights.", reason="stale",
            remedy="Export the bundle again.",
        )  # fmt: skip
    _check_versions(library_version(library), "", found.toolkit, settings)
    return found.toolkit


def _check_versions(library: str, driver: str, toolkit: str, settings: RknnSettings) -> None:
    """Refuse what is too old; the package says nothing of it. Unknown is good enough."""
    for needed, whom in ((toolkit, "the model's toolkit"), (settings.least_library, "the profile")):
        if library and needed and older(library, needed):
            raise NpuError(
                f"librknnrt is {library}; {whom} needs {needed} or newer.", reason="old-library",
                remedy=_UPDATE,
            )  # fmt: skip
    if driver and older(driver, settings.least_driver):
        raise _old_driver(driver, settings)


def _old_driver(version: str, settings: RknnSettings) -> NpuError:
    return NpuError(
        f"The NPU driver is {version}, needed is {settings.least_driver}.", reason="old-driver",
        remedy="Update the board's kernel.",
    )  # fmt: skip


def _sdk_versions(lite: Any) -> tuple[str, str]:
    """Versions of librknnrt and driver as the context tells them; empty without one."""
    text = lite.get_sdk_version() or ""
    found = {}
    for line in str(text).splitlines():
        name, _, rest = line.partition(":")
        version = _VERSION.search(rest)
        if version is not None:
            found[name.strip().upper()] = version[0]
    return found.get("API", ""), found.get("DRV", "")


def _package_version() -> str:
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""
