"""Doctor: what stands between this device and speech, with evidence and remedy."""
