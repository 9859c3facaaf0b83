"""Training of many small networks at once: recipes, layers, pruners, the training loop, one trial."""
