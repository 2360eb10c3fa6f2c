"""Runs inside the toolkit's environment, on its Python: converts and simulates as it is told.

One JSON request per line on standard input, JSON lines as answers on standard output: any number of
``{"step": …}``, then ``{"done": {…}}`` or ``{"error": …, "trace": …}``. It imports nothing of
boardvoice. The toolkit writes to both standard streams from native code, so those go to the log.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

Request = dict[str, Any]
Tell = Callable[[str], None]


class RefusedError(Exception):
    """The toolkit refused."""


class Toolkit:
    """One RKNN object at a time."""

    def __init__(self) -> None:
        self._rknn: Any = None
        self._shapes: list[tuple[int, ...]] = []

    def versions(self, request: Request, tell: Tell) -> dict[str, Any]:
        """What takes part; nothing is imported."""
        from importlib import metadata

        found = {"python": "{}.{}.{}".format(*sys.version_info[:3])}
        for name in ("rknn-toolkit2", "onnx", "torch", "numpy"):
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                if name == "rknn-toolkit2":
                    raise RefusedError("rknn-toolkit2 is not in this environment.") from None
        return found

    def check(self, request: Request, tell: Tell) -> dict[str, Any]:
        """The same, once the toolkit imports."""
        from rknn.api import RKNN

        RKNN(verbose=False).release()
        return self.versions(request, tell)

    def convert(self, request: Request, tell: Tell) -> dict[str, Any]:
        """ONNX to ``.rknn``."""
        self._build(request, tell)
        tell("export")
        _check("export_rknn", self._rknn.export_rknn(request["rknn"]))
        self._release()
        return {}

    def simulate(self, request: Request, tell: Tell) -> dict[str, Any]:
        """Make ready to run on this PC; a file that was converted cannot be simulated."""
        self._build(request, tell)
        tell("start")
        # With a target it would start a daemon that looks for a board.
        _check("init_runtime", self._rknn.init_runtime())
        self._shapes = [tuple(shape) for shape in request["shapes"]]
        return {}

    def run(self, request: Request, tell: Tell) -> dict[str, Any]:
        """One inference in the simulator."""
        import numpy as np

        if self._rknn is None:
            raise RefusedError("Nothing has been built to run.")
        inputs = [
            np.frombuffer(base64.b64decode(data), np.float32).reshape(shape)
            for data, shape in zip(request["inputs"], self._shapes)  # noqa: B905 - Python 3.9
        ]
        outputs = self._rknn.inference(inputs=inputs, data_format=["nchw"] * len(inputs))
        if outputs is None:
            raise RefusedError("inference gave nothing.")
        arrays = [np.ascontiguousarray(output, np.float32) for output in outputs]
        return {
            "outputs": [base64.b64encode(array.tobytes()).decode() for array in arrays],
            "shapes": [list(array.shape) for array in arrays],
        }

    def _build(self, request: Request, tell: Tell) -> None:
        from rknn.api import RKNN

        self._release()
        tell("load")
        dataset = request.get("dataset")
        self._rknn = RKNN(verbose=True)
        options = {"quantized_dtype": "w8a8"} if dataset else {}
        _check(
            "config",
            self._rknn.config(
                target_platform=request["target"], custom_string=request["mark"], **options
            ),
        )
        _check("load_onnx", self._rknn.load_onnx(model=request["onnx"]))
        tell("build")
        if dataset:
            code = self._rknn.build(do_quantization=True, dataset=dataset, auto_hybrid=True)
        else:
            code = self._rknn.build(do_quantization=False)
        _check("build", code)

    def _release(self) -> None:
        if self._rknn is not None:
            self._rknn.release()
            self._rknn = None


def _check(call: str, code: Any) -> None:
    # It says what went wrong by a code, by an exception, or by both.
    if code not in (0, None):
        raise RefusedError(f"{call} returned {code}.")


def _read(requests: queue.Queue[Request], source: Any) -> None:
    for line in source:
        requests.put(json.loads(line))
    # Who asked is gone: minutes of building for nobody, in gigabytes, end here.
    os._exit(1)


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    source = os.fdopen(os.dup(0), "r", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def tell(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    requests: queue.Queue[Request] = queue.Queue()
    threading.Thread(target=_read, args=(requests, source), daemon=True).start()
    toolkit = Toolkit()
    calls = {
        "versions": toolkit.versions,
        "check": toolkit.check,
        "convert": toolkit.convert,
        "simulate": toolkit.simulate,
        "run": toolkit.run,
    }
    while True:
        request = requests.get()
        try:
            tell({"done": calls[request["do"]](request, lambda step: tell({"step": step}))})
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            trace = traceback.format_exc()
            sys.stderr.write(trace)
            tell({"error": f"{type(error).__name__}: {error}", "trace": trace})
        sys.stdout.flush()


if __name__ == "__main__":
    main()
