r"""A budget, split over the layers of a network by what the loss would lose.

Each group has an importance :math:`s_g`: with gradients the root of the score "taylor" of
:mod:`trimreg.nn.penalty.scores`, the size of the change of the loss without it; before the first of them its
share :math:`r_g^2 / \sum_g r_g^2` of the squared norms of its layer, times the number of layers that share
its channels. With :math:`S_l` the sum of the importances of layer l, the sizes k solve

.. math:: \min_k \sum_l S_l \Bigl(\frac{S_l}{\sum_{g \le k_l} s_{(g)}} - 1\Bigr)
    \quad\text{so that}\quad price(k) \le budget

with the groups of a layer in falling order. For a small cut that is the sum of what is removed, a bound of
the change of the loss to first order. A layer of which little is left counts more than its sum: what it
computes is lost as a whole. The solution is greedy: the group with the least loss per saved cost is removed,
at the prices of the sizes that are left, until the budget is met; then groups that still fit return. If more
than 1 % of the budget is left then, as in networks of few groups, groups of two layers are exchanged while
that brings the price nearer. The price is never above the budget.

A penalty with a budget has sizes from the beginning, by norms. They are decided once more, by the scores
collected until then, at the first step at which h falls.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..groups.blocks import block_of
from ..groups.layer_groups import LayerGroups, share_of
from ..structure.budget import Budget, Price, price_of
from ..structure.cost import macs_by_module, parameters
from ..structure.coupling import Coupling
from ..structure.tracing import checked_inputs, moved
from .fall import Fall
from .schedules import within
from .scores import Changes

if TYPE_CHECKING:
    from .trimmed_group_l1 import TrimmedGroupL1

#: How near to the budget the price should be, and how many groups of a layer are exchanged for that at once.
NEAR, EXCHANGED = 0.01, 4


def allocate(
    importance: Mapping[str, Any], price: Price, most: float, least: Mapping[str, int]
) -> dict[str, int]:
    """The sizes of all parts, at most at this price, that keep the most important groups for it.

    Parameters
    ----------
    importance : mapping of str to array
        By part, that of each of its groups.
    price : Price
    most : float
        The budget. The sizes ``least`` must meet it.
    least : mapping of str to int
        What each part keeps at least.

    Examples
    --------
    >>> from trimreg.nn.penalty.split import allocate
    >>> from trimreg.nn.structure.budget import Price
    >>> price = Price(10.0, [(("a",), lambda k: 2 * k["a"]), (("b",), lambda k: k["b"])])
    >>> allocate({"a": [9, 1, 8], "b": [5, 5, 0]}, price, 16.0, {"a": 1, "b": 1})
    {'a': 2, 'b': 2}
    """
    worth = {name: _worth(np.asarray(values, dtype=float)) for name, values in importance.items()}
    kept = {name: len(values) for name, values in importance.items()}
    cost = price(kept)
    moves: dict[str, tuple[float, int]] = {}
    while cost > most:
        for name in [name for name in kept if name not in moves]:
            moves[name] = _removal(name, worth[name], price, kept, least[name])
        name = min(moves, key=lambda one: moves[one][0])
        loss, size = moves[name]
        if loss == np.inf:
            raise ValueError("the least sizes cost more than the budget")
        kept[name] = size
        cost = price(kept)
        for other in price.neighbors(name):
            moves.pop(other, None)
    for name in _returning(worth, price, kept):
        kept[name] = _filled(name, len(worth[name]) - 1, price, kept, most)
    while price(kept) < (1.0 - NEAR) * most and (better := _exchange(worth, price, kept, most, least)):
        kept |= better
    return kept


def _worth(values: np.ndarray) -> np.ndarray:
    """The value of keeping 0, 1, ... groups of a part: less its sum of importances by the share kept."""
    total = values.sum()
    if not total > 0:
        return np.zeros(len(values) + 1)
    share = np.cumsum(-np.sort(-values)) / total
    return np.concatenate([[-np.inf], -total / share])


def _removal(
    name: str, worth: np.ndarray, price: Price, kept: dict[str, int], least: int
) -> tuple[float, int]:
    """The loss per saved cost of the next groups of a part, and the size without them."""
    for size in range(kept[name] - 1, least - 1, -1):
        saved = price.saved(name, kept, size)
        if saved > 0:  # a table may have steps
            return float(worth[kept[name]] - worth[size]) / saved, size
    return np.inf, kept[name]


def _returning(worth: dict[str, np.ndarray], price: Price, kept: dict[str, int]) -> list[str]:
    """The parts in the order in which their next group returns: most value per cost first."""
    gains = {}
    for name, values in worth.items():
        if kept[name] + 1 < len(values):
            cost = -price.saved(name, kept, kept[name] + 1)
            gains[name] = float(values[kept[name] + 1] - values[kept[name]]) / max(cost, 1e-300)
    return sorted(gains, key=lambda name: -gains[name])


def _filled(name: str, count: int, price: Price, kept: dict[str, int], most: float) -> int:
    """The largest size of a part that fits into the budget."""
    room, size = most - price(kept), kept[name]
    while size < count and -price.saved(name, kept, size + 1) <= room:
        size += 1
    return size


def _exchange(
    worth: dict[str, np.ndarray],
    price: Price,
    kept: dict[str, int],
    most: float,
    least: Mapping[str, int],
) -> dict[str, int] | None:
    """Fewer groups of one part and more of another, for a price nearer to the budget; None if there is none.

    Of those that are near enough, the one that loses least; otherwise the one with most price.
    """
    best, result, now = (False, 0.0), None, price(kept)
    for one in kept:
        for size in range(kept[one] - 1, max(kept[one] - EXCHANGED, least[one]) - 1, -1):
            trial = {**kept, one: size}
            lost = float(worth[one][kept[one]] - worth[one][size])
            for other in kept:
                if other == one:
                    continue
                new = _filled(other, len(worth[other]) - 1, price, trial, most)
                cost = price({**trial, other: new})
                won = float(worth[other][new] - worth[other][kept[other]])
                near = cost >= (1.0 - NEAR) * most
                value = (near, won - lost if near else cost)
                if cost > now and (result is None or value > best):
                    best, result = value, {one: size, other: new}
    return result


class Split:
    """The budget of a penalty: its price, what is left to decide, and the sizes when it is decided.

    Parameters
    ----------
    budget : Budget
    layers : dict of str to LayerGroups
    rank_by : str
    coupling : Coupling or None
    model : nn.Module
    example_input : Tensor or tuple of positional inputs
    """

    def __init__(
        self,
        budget: Budget,
        layers: dict[str, LayerGroups],
        rank_by: str,
        coupling: Coupling | None,
        model: nn.Module,
        example_input: Any,
    ):
        if rank_by == "activity":
            raise ValueError("a Budget needs rank_by 'norm' or 'taylor'; got 'activity'")
        ensembles = [name for name, groups in layers.items() if groups.replicas]
        if ensembles:
            raise ValueError(f"layer {ensembles[0]!r} is an ensemble: give sizes to the layers, no Budget")
        if example_input is None:
            raise TypeError(f"{budget!r} needs an example_input, to count what the network costs")
        self.budget = budget
        spaces = {
            next(iter(coupling.layers[name].outputs.spaces)): name
            for name, groups in layers.items()
            if groups.kind == "channels" and coupling is not None
        }
        blocks = [name for name, groups in layers.items() if groups.kind != "channels"]
        each, whole = _costs_of_blocks(layers, blocks, coupling, model, example_input)
        self.price = price_of(budget, coupling, spaces, each, whole)
        self.counts = {name: groups.count for name, groups in layers.items()}
        self.least = {
            name: min(count, share_of(count, budget.min_keep)) for name, count in self.counts.items()
        }
        self.total = self.price(self.counts)
        self.most = self._checked()
        self.decided = torch.zeros((), dtype=torch.bool)  # in states
        self.sizes = torch.zeros(len(layers), dtype=torch.int64)  # in the order of the layers
        self._watch: Any = None

    def _checked(self) -> float:
        """The budget as a number; raise if it cannot be met, or is more than the network costs."""
        asked, least = getattr(self.budget, self.budget.kind), self.price(self.least)
        most = asked * self.total if asked < 1 else asked
        if most > self.total:
            raise ValueError(f"{self.budget!r} is more than the whole network has, {self.total:,.6g}")
        if most < least:
            raise ValueError(
                f"{self.budget!r} cannot be met: the least is {least:,.6g}, or {least / self.total:.3g} of "
                f"the network's {self.total:,.6g}, with {self._shown(self.least)}"
            )
        return most

    def _shown(self, sizes: dict[str, int]) -> str:
        shown = [f"{size} of {name!r}" for name, size in list(sizes.items())[:4]]
        return ", ".join(shown) + (f" and so on in {len(sizes) - 4} more layers" if len(sizes) > 4 else "")

    def split(self, importance: dict[str, Tensor]) -> dict[str, int]:
        """The sizes of all layers."""
        found = allocate(
            {name: value.double().cpu().numpy() for name, value in importance.items()},
            self.price, self.most, self.least,
        )  # fmt: skip
        self.sizes.copy_(torch.tensor(list(found.values())))
        return found

    def by_norms(self, layers: dict[str, LayerGroups]) -> dict[str, int]:
        """The sizes before any gradient."""
        return self.split({name: shares(groups) for name, groups in layers.items()})

    def by_scores(self, penalty: TrimmedGroupL1) -> dict[str, int]:
        """The sizes by the scores collected so far, or by norms if there are none."""
        scores = {name: pack.of(pack.scores, name) for pack in penalty.packs for name in pack.layers}
        scores = {name: scores[name] for name in penalty.layers}
        seen = all(bool(score.isfinite().all()) for score in scores.values())
        if not seen or not any(bool(score.any()) for score in scores.values()):
            return self.by_norms(penalty.layers)
        return self.split({name: score.sqrt() for name, score in scores.items()})

    def of(self, state: dict[str, Tensor]) -> dict[str, int]:
        """The sizes of a state, by layer; the own ones if it has none."""
        return dict(zip(self.counts, state.get("budget.sizes", self.sizes).tolist(), strict=True))

    def result(self, keep: dict[str, int]) -> tuple[str, float, float]:
        """For the report: what is counted, the budget, and the price of the sizes."""
        return self.budget.kind, self.most, self.price(keep)

    # -- when -----------------------------------------------------------------------------------------------

    def watch(self, penalty: TrimmedGroupL1, optimizer: torch.optim.Optimizer) -> list:
        """Collect scores until the decision; returns the handles of the hooks."""
        if penalty.rank_by == "taylor" or bool(self.decided):
            return []
        hook = torch.compiler.disable(Changes(penalty).before)
        self._watch = optimizer.register_step_pre_hook(hook)
        return [self._watch]

    def look(self, penalty: TrimmedGroupL1) -> None:
        """Decide if h falls in this step of the penalty. The device is asked only once h may fall."""
        if bool(self.decided):
            return
        schedule, step, end = penalty.h_schedule, penalty.step + 1, penalty.freeze_at
        if isinstance(schedule, Fall) and penalty.calls + 1 < schedule.starts:
            return
        if penalty.step.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"{self.budget!r} is not decided yet, and cannot be while a CUDA graph is captured; call "
                "penalty.decide_() before"
            )
        fixed = end is not None and bool(step >= end)
        if schedule is None or fixed or bool(torch.as_tensor(within(schedule, step) > 0)):
            penalty.decide_()

    def decide_(self, penalty: TrimmedGroupL1) -> None:
        """Give the penalty the sizes by scores, once."""
        if not bool(self.decided):
            resize_(penalty, self.by_scores(penalty))
            self.decided.fill_(True)
            self.end_watch()

    def resume_(self, penalty: TrimmedGroupL1, keep: dict[str, int]) -> None:
        """Go on from a state that was loaded."""
        resize_(penalty, keep)
        if bool(self.decided):
            self.end_watch()

    def end_watch(self) -> None:
        """Collect no more scores."""
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_watch": None}


def resize_(penalty: TrimmedGroupL1, keep: dict[str, int]) -> None:
    """Give a penalty other sizes."""
    penalty.keep = keep
    for pack in penalty.packs:
        pack.resize_(keep)


def shares(groups: LayerGroups) -> Tensor:
    """The shares of a layer's squared norm that its groups have, times the number of its coupled layers."""
    squares = groups.norms().detach().double().square()
    layers = max(1, len(groups.coupled))
    return layers * squares / squares.sum().clamp_min(torch.finfo(torch.float64).tiny)


def _costs_of_blocks(
    layers: dict[str, LayerGroups],
    blocks: list[str],
    coupling: Coupling | None,
    model: nn.Module,
    example_input: Any,
) -> tuple[dict[str, tuple[int, int, int]], tuple[int, int]]:
    """The groups of each block with the parameters and MACs of one of them; and those of the network."""
    if coupling is not None and not blocks:
        return {}, (coupling.parameters({}), coupling.macs({}))
    for name in blocks:
        groups = layers[name]
        if groups.kind not in ("heads", "units") or isinstance(groups.module, nn.RNNBase):
            what = "hidden units of recurrent layers" if groups.kind == "units" else f"groups {groups.kind!r}"
            raise ValueError(
                f"layer {name!r}: a Budget cannot be split over {what}; give sizes to the layers"
            )
    network = copy.deepcopy(model).cpu().eval()
    at = dict(zip(model.modules(), network.modules(), strict=True))
    spent = macs_by_module(network, moved(checked_inputs(example_input), "cpu"))
    found = {}
    for name in blocks:
        groups = layers[name]
        each = sum(s.view(s.tensor(), groups.count).numel() for s in groups.slabs) // groups.count
        owners = {at[slab.owner] for slab in groups.slabs}
        if groups.kind == "heads":
            block: Any = block_of(groups.module, groups.kind)
            owners.add(at[block.module])
        outer = [
            one for one in owners if not any(one in other.modules() for other in owners if other is not one)
        ]
        found[name] = groups.count, each, sum(spent[one] for one in outer) // groups.count
    return found, (parameters(network), spent[network])
