"""TensorRT engines: where they lie, and a process of its own that builds them."""
