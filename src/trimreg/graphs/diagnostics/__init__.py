"""Certificates of a precision matrix, computed without the solver."""
