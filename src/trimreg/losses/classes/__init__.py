"""Losses of classes."""
