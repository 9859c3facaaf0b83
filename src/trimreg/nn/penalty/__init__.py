"""Penalties on the groups of a network, and the hook that applies them."""
