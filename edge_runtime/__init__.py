"""Runtime: loads a bundle and speaks, within the board's memory."""

import os

# ONNX Runtime reads it when it is imported, so it is set before that: from 1.29 on the Linux
# packages note models and devices in the cache folder, to be sent to their maker.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
