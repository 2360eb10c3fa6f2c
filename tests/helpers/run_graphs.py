"""Runs graphs with whatever ONNX Runtime this interpreter has: FOLDER with NAME.onnx, NAME.npz.

Writes NAME.out.npz; needs nothing but onnxruntime and numpy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort


def main(graphs: Path, feeds: Path, out: Path) -> None:
    for inputs in sorted(feeds.glob("*.npz")):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        path = str(graphs / (inputs.stem + ".onnx"))
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        results = session.run(None, dict(np.load(inputs)))
        names = [port.name for port in session.get_outputs()]
        np.savez(out / inputs.name, **dict(zip(names, results)))  # noqa: B905
    print(json.dumps({"onnxruntime": ort.__version__}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
