"""First-order methods: Algorithm 1 of the paper, DC and proximal gradient."""
