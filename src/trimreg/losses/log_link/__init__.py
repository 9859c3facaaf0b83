"""Losses of counts and amounts, whose mean is the exponential of the predictor."""
