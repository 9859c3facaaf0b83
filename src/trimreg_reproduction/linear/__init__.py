"""Experiments on linear models."""
