"""ONNX graph building blocks."""
