"""A trained, trimmed network as a smaller one with the same outputs."""
