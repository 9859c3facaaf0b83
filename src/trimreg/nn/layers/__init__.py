"""Bayesian layers and L0 gates."""
