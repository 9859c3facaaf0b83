"""Designs made of other designs."""
