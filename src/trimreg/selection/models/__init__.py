"""Estimators that choose h, alpha and l2 and have a ``fit`` of their own."""
