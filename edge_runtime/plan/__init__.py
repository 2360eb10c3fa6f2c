"""Plans on paper: what a bundle would take on a board that is not at hand."""
