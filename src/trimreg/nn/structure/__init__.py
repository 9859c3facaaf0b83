"""The structure of a network: its graph, the flow of channels through it, and its cost."""
