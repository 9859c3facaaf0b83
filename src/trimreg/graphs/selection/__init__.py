"""Choosing the number of edges and alpha."""
