"""Bayesian layers, L0 gates, and the layers of exported networks."""
