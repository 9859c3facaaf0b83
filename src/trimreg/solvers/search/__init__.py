"""Exchanges: better free sets by splices, swaps and kicks."""
