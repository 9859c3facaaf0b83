"""Benchmarks against the peers. ``python -m benchmarks`` runs all and writes RESULTS.md; see __main__."""
