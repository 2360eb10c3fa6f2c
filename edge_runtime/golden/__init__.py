"""Golden vectors: small inputs and what the exporter computed from them, run again on a device."""
