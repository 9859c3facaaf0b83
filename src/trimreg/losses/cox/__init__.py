"""Cox's proportional hazards model: the loss, the terms of the partial likelihood, and sets at risk."""

from __future__ import annotations

from .loss import Cox

__all__ = ["Cox"]
