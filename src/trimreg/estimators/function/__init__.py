"""Any differentiable function of a parameter vector: its derivatives, its problem, and ``minimize``."""
