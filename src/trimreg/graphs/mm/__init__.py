"""The default solver of graphical models: majorization-minimization over weighted graphical lassos."""
