"""Seeded checkpoints in the official VoxCPM2 layout, made without PyTorch.

The exporter, the runtime and their tests need checkpoints of every shape the official package
accepts, small and full size, on machines that hold neither the published weights nor PyTorch.
"""

from export.synthetic.maker import make_checkpoint
from export.synthetic.recipes import RECIPES, Recipe

__all__ = ["RECIPES", "Recipe", "make_checkpoint"]
