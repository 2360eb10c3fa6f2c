"""Stands in for rknn-toolkit2's API: same calls, same ways to fail, ONNX Runtime behind it.

``FAKE_RKNN`` names a fault: ``CALL:code``, ``CALL:raise``, ``CALL:die``, ``CALL:hang``, ``cpu`` (an
operator on the CPU), ``no-table``, ``no-mark``, ``inference:none``, ``inference:shape``.
``FAKE_RKNN_CALLS`` is a file that takes the calls.
"""

import json
import os
import signal
import struct
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

ROW = (
    "D RKNN: [22:29:57.888] {id:<4d} {op:<18s} FLOAT16  {on:<6s} {shape:<40s} (2,1,1,1)   "
    "1/2/{cycles:<10d} 2            {op}:{name:<16s}"
)
RULE = "D RKNN: [22:29:57.888] " + "-" * 100


class RKNN:
    def __init__(self, verbose=False):
        self._mark = ""
        self._target = ""
        self._model = None
        self._call("new")

    def config(self, target_platform, custom_string, quantized_dtype=None):
        self._target, self._mark = target_platform, custom_string
        return self._call("config")

    def load_onnx(self, model):
        self._model = model
        return self._call("load_onnx")

    def build(self, do_quantization, dataset=None, auto_hybrid=False):
        if do_quantization:
            for line in Path(dataset).read_text().splitlines():
                for name in line.split():
                    np.load(name)
        with open("check2_base.onnx", "wb") as left:
            left.write(bytes(1000))
        if fault() != "no-table":
            self._print_table()
        return self._call("build")

    def export_rknn(self, path):
        text = json.dumps({"version": "2.5.0 (fake)", "target_platform": [self._target]}).encode()
        mark = "other" if fault() == "no-mark" else self._mark
        body = mark.encode() + bytes(300)
        header = b"RKNN" + bytes(4) + struct.pack("<QQ", 6, len(body))
        with open(path, "wb") as file:
            file.write(header.ljust(64, b"\0") + body + struct.pack("<Q", len(text)) + text)
        return self._call("export_rknn")

    def init_runtime(self):
        code = self._call("init_runtime")
        self._session = onnxruntime.InferenceSession(self._model)
        return code

    def inference(self, inputs, data_format):
        code = self._call("inference")
        if code or fault() == "inference:none":
            return None
        names = [port.name for port in self._session.get_inputs()]
        found = self._session.run(None, dict(zip(names, inputs, strict=True)))[0]
        found = found.astype(np.float16).astype(np.float32)
        return [found[:1] if fault() == "inference:shape" else found]

    def release(self):
        self._call("release")

    def _call(self, name):
        # From native code, past Python's own stream.
        os.write(1, f"I rknn: {name}\n".encode())
        if calls := os.environ.get("FAKE_RKNN_CALLS"):
            with open(calls, "a") as file:
                file.write(name + "\n")
        call, _, what = fault().partition(":")
        if call != name:
            return 0
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            time.sleep(600)
        if what == "raise":
            raise ValueError("Traceback (most recent call last):\n  somewhere\nValueError: bad op")
        return -1 if what == "code" else 0

    def _print_table(self):
        graph = onnx.load(self._model, load_external_data=False).graph
        lines = [RULE, "D RKNN: [22:29:57.888]    Network Layer Information Table   ", RULE]
        for index, node in enumerate(graph.node):
            outside = node.output[0] in ("x_in", "prefix_in", "velocity_out")
            on = "CPU" if outside or (fault() == "cpu" and node.op_type == "Softmax") else "NPU"
            lines.append(
                ROW.format(
                    id=index, op=node.op_type, on=on, shape="(2,1,1,1),(2)", cycles=100,
                    name=node.output[0],
                )
            )
        lines += [RULE, "D RKNN: [22:29:57.888]    Feature Tensor Information Table   ", RULE]
        lines += [ROW.format(id=9, op="Conv", on="CPU", shape="(1)", cycles=5, name="not_a_row")]
        lines += [
            "D RKNN: [22:29:57.890] Total Internal Memory Size: 42.0625KB",
            "D RKNN: [22:29:57.890] Total Weight Memory Size: 168.562KB",
        ]
        print("\n".join(lines), flush=True)


def fault():
    return os.environ.get("FAKE_RKNN", "")
