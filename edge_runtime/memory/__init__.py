"""Memory: what this process may use, what it will use, and a guard in between."""
