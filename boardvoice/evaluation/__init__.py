"""Whether a bundle speaks well: what a recogniser hears, silence, repetition, ends, spectra."""
