"""Recipes that train models; shipped with the source only."""
