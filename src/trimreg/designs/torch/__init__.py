"""Dense PyTorch tensors, on any device."""
