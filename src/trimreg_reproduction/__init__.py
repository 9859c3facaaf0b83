"""Whole experiments: data, fits, certificates, pictures. The command line calls them."""

from __future__ import annotations
