"""boardvoice as a service of systemd: the unit's text, and where it goes."""
