"""Experiments that train networks; the modules in here import torch."""
