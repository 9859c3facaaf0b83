"""The diamond graph of the paper's supplement."""
