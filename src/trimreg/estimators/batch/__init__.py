"""Many small problems in one call."""
