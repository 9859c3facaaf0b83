"""Dense matrices held by PyTorch, on any device."""
