"""The report of an export: sizes of layers, costs before and after."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class LayerSize:
    """The size of a layer: its groups before, the groups to keep, and the groups in the exported layer."""

    name: str
    kind: str
    groups: int
    kept: int
    physical: int
    note: str = ""


@dataclass(frozen=True)
class Report:
    """The sizes and costs of a network before and after its export.

    ``kept`` is the requested size, and the one to quote: every group that training kept counts, whether or
    not the rest of the network uses it. ``physical`` is the size of the exported layer. It is smaller than
    ``kept`` if a kept group cannot influence the output (a channel whose flattened entries were all removed)
    or is constant (an input from a removed channel). It is larger if a group must stay because of another
    layer (a residual sum, the output). Parameters, multiply-accumulates and times are those of the exported
    network.

    ``difference`` is that of the outputs on the example from the network as trained, relative to the largest;
    ``masked_difference`` from the network with the groups that are not kept at zero. The second is rounding.
    The first is more if these groups were not zero after training.

    ``budget`` is that of a penalty that has one: what it counts, the most, and the price of the sizes.
    """

    layers: tuple[LayerSize, ...]
    parameters: tuple[int, int]
    macs: tuple[int, int]
    latency: tuple[float, float] | None
    indices: int
    difference: float
    masked_difference: float
    budget: tuple[str, float, float] | None = None

    @property
    def size(self) -> str:
        """The requested sizes as in the tables of papers: ``"392-150-50"``."""
        return "-".join(str(layer.kept) for layer in self.layers)

    def to_dict(self) -> dict:
        """The report as plain values, for JSON."""
        return asdict(self) | {"size": self.size}

    def __str__(self) -> str:
        rows = [("layer", "groups", "kept", "physical", "")]
        for layer in self.layers:
            groups = f"{layer.groups} {layer.kind}"
            rows.append((layer.name, groups, str(layer.kept), str(layer.physical), layer.note))
        rows.append(("", "before", "after", "ratio", ""))
        for name, (before, after) in (("parameters", self.parameters), ("MACs per sample", self.macs)):
            rows.append((name, f"{before:,}", f"{after:,}", f"{before / max(after, 1):.1f}", ""))
        if self.budget is not None:
            kind, most, used = self.budget
            form = ",.0f" if kind != "latency" else ".4g"
            note = f"{used / most:.1%} of a budget of {most:{form}}"
            rows.append((f"{kind} of the sizes", "", f"{used:{form}}", "", note))
        if self.latency is not None:
            old, new = (1e3 * seconds for seconds in self.latency)
            rows.append(("latency, ms", f"{old:.3f}", f"{new:.3f}", f"{old / new:.1f}", ""))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = []
        for name, *numbers, note in rows:
            cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *cells, note]).rstrip())
        lines.append(f"{self.indices:,} index entries; outputs differ by {self.difference:.1e} relative")
        if self.difference != self.masked_difference:
            lines[-1] += " from the trained network,"
            lines.append(
                "because groups were cut that were not zero; from the network with these groups at zero by "
                f"{self.masked_difference:.1e}"
            )
        return "\n".join(lines)
