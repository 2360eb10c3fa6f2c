"""Boardvoice: big open speech models on small boards."""
