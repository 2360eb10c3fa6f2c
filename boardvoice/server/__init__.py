"""The HTTP server: OpenAI-compatible speech, within limits that protect the device."""
