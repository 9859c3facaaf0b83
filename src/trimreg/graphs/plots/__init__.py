"""Pictures of graphs and of their paths."""
