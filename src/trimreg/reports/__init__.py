"""Pages and charts of fitted models, and the demonstration."""
