"""Branch and bound: how far a fit with h free parts is from the best possible."""
