"""How hard the default solver searches, by the names ``"low"``, ``"medium"`` and ``"high"``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How hard to look for a good basin."""

    search: bool  # whether there are a homotopy and exchanges at all
    homotopy: bool = True
    splices: tuple[int, ...] = (8, 4, 2)
    trials: int = 6
    kicks: int = 4
    subset_kicks: int = 6
    rounds: int = 1
    subset_rounds: int = 1
    starts: int = 12  # random starts of trimmed least squares, at most, if supports are hard to find
    work: float = 5e7  # operations that they may take together, counted in one ridge regression each
    agreed: int = 1  # they end when so many lead to the lowest free set again
    patience: int = 150  # crossings of best subsets without a lower one, before they end
    rivals: bool = False  # whether other starts are tried even if supports are not hard to find


EFFORTS = {
    "low": Effort(search=False), "medium": Effort(search=True),
    "high": Effort(
        search=True, splices=(32, 16, 8, 4, 2), trials=24, kicks=20, subset_kicks=30, rounds=3,
        subset_rounds=4, starts=180, work=4e8, agreed=4, patience=400, rivals=True,
    ),
}  # fmt: skip
