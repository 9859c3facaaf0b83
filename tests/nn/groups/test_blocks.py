"""Groups of blocks and of recurrent layers: which entries they hold, and what is not recognized."""

import pytest
import torch
from torch import nn

from trimreg.nn import TrimmedGroupL1, layer_groups
from trimreg.nn.groups.recurrent import recurrent_groups


class Block(nn.Module):
    """A module with layers of the given names."""

    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)


def shared_heads(**more):
    """Six heads of queries of width 2 that share three heads of keys and values."""
    queries, keys = nn.Linear(4, 12), nn.Linear(4, 6)
    return Block(
        q_proj=queries, k_proj=keys, v_proj=nn.Linear(4, 6), o_proj=nn.Linear(12, 4), head_dim=2, **more
    )


def fused(**more):
    return Block(qkv=nn.Linear(4, 18), proj=nn.Linear(6, 4), num_heads=3, **more)


def of_head(entry, width):
    return entry // width


CASES = {  # the group of each row of the layers that compute the block, and of each column of the last one
    "heads": (
        shared_heads, "heads", (3,),
        {"q_proj": lambda i: (i // 4,), "k_proj": lambda i: (i // 2,), "v_proj": lambda i: (i // 2,)},
        {"o_proj": lambda i: (i // 4,)},
    ),
    "queries": (
        shared_heads, "queries", (3, 2),
        {"q_proj": lambda i: (i // 4, i % 4 // 2)}, {"o_proj": lambda i: (i // 4, i % 4 // 2)},
    ),
    "width of fused heads": (
        fused, "width", (3, 2), {"qkv": lambda i: (i % 6 // 2, i % 2)}, {"proj": lambda i: (i // 2, i % 2)},
    ),
    "heads with their rows side by side": (
        lambda: Block(query_key_value=nn.Linear(4, 18), dense=nn.Linear(6, 4), head_size=2), "heads", (3,),
        {"query_key_value": lambda i: (i // 6,)}, {"dense": lambda i: (i // 2,)},
    ),
    "units of a gated perceptron": (
        lambda: Block(gate_up_proj=nn.Linear(3, 10), down_proj=nn.Linear(5, 3)), "units", (5,),
        {"gate_up_proj": lambda i: (i % 5,)}, {"down_proj": lambda i: (i,)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_members_of_groups_of_blocks(case):
    build, kind, shape, rows, columns = CASES[case]
    block = build().double()
    made = layer_groups("block", block, kind)
    assert (*made.replicas, made.count) == shape
    squares = torch.zeros(shape, dtype=torch.float64)
    expected = {name: p.detach().clone() for name, p in block.named_parameters()}
    factor = torch.rand(shape, dtype=torch.float64)
    for name, group in rows.items():
        for i, row in enumerate(block.get_submodule(name).weight.detach()):
            squares[group(i)] += row.square().sum()
            expected[f"{name}.weight"][i] *= factor[group(i)]
            expected[f"{name}.bias"][i] *= factor[group(i)]
    for name, group in columns.items():
        for i, column in enumerate(block.get_submodule(name).weight.detach().T):
            squares[group(i)] += column.square().sum()
            expected[f"{name}.weight"][:, i] *= factor[group(i)]
    torch.testing.assert_close(made.norms().detach(), squares.sqrt())
    made.scale_(factor)
    for name, parameter in block.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_members_of_hidden_units(kind):
    rnn, size = kind(3, 5, num_layers=2, bidirectional=True).double(), 5
    before = {name: p.detach().clone() for name, p in rnn.named_parameters()}
    groups = recurrent_groups("rnn", rnn)
    assert [part.name for part in groups] == ["rnn.l0", "rnn.l0_reverse", "rnn.l1", "rnn.l1_reverse"]
    for part in groups:
        end = part.name.removeprefix("rnn.")
        weights = [before[f"weight_ih_{end}"], before[f"weight_hh_{end}"]]
        squares = [sum(w[u::size].square().sum() for w in weights) for u in range(size)]
        torch.testing.assert_close(part.norms().detach().square(), torch.stack(squares))
        part.scale_(torch.tensor([1.0, 0, 1, 0, 1], dtype=torch.float64))
        for u in (1, 3):
            for of in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                before[f"{of}_{end}"][u::size] = 0
            before[f"weight_hh_{end}"][:, u] = 0
            for above in ("l1", "l1_reverse") if end.startswith("l0") else ():
                before[f"weight_ih_{above}"][:, u + size * end.endswith("reverse")] = 0
    for name, parameter in rnn.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=0, atol=0)
    out, state = rnn(torch.randn(7, 2, 3).double())
    state = state[0] if kind is nn.LSTM else state
    assert (out[..., [1, 3, 6, 8]] == 0).all()
    assert (state[..., [1, 3]] == 0).all()
    assert (out[..., [0, 2, 4, 5, 7, 9]] != 0).any()


def test_strengths_of_a_recurrent_layer_are_those_of_its_parts():
    model = nn.ModuleDict({"rnn": nn.GRU(3, 4, num_layers=2), "head": nn.Linear(4, 2)})
    penalty = TrimmedGroupL1(model, {"rnn": 2, "head": 3}, alpha={"*": 0.5, "rnn": 2.0})
    assert penalty.alpha == {"rnn.l0": 2.0, "rnn.l1": 2.0, "head": 0.5}
    assert penalty.keep == {"rnn.l0": 2, "rnn.l1": 2, "head": 3}
    with pytest.raises(ValueError, match=r"not in keep: \['head'\]"):
        TrimmedGroupL1(model, {"rnn": 2}, alpha={"rnn": 1.0, "head": 1.0})


def test_a_glob_takes_a_block_and_not_the_part_that_computes_it():
    model = nn.ModuleDict(
        {"attn": Block(c_attn=fused()), "mlp": Block(fc1=nn.Linear(3, 5), fc2=nn.Linear(5, 3))}
    )
    penalty = TrimmedGroupL1(model, {"*attn": 2, "mlp": 4})
    assert {name: layer.kind for name, layer in penalty.layers.items()} == {
        "attn.c_attn": "heads",
        "mlp": "units",
    }
    with pytest.raises(ValueError, match=r"'\*\.c_attn' .* use '\*\*\.c_attn' for any depth"):
        TrimmedGroupL1(nn.ModuleDict({"deep": model}), {"*.c_attn": 2})
    part = TrimmedGroupL1(model, {"*fc1": 2}, groups="units").layers["mlp.fc1"]
    assert [slab.owner for slab in part.counted] == [model["mlp"].fc1, model["mlp"].fc2]


class Positions(Block):
    def forward(self, x, position_bias=None):
        return x


class Rotary(Block):
    def forward(self, x, position_embeddings):
        return x


REFUSED = {
    "a bias of positions": (lambda: Positions(**vars_of(fused())), "heads", "'position_bias' depends"),
    "a table by head": (lambda: fused(table=nn.Embedding(5, 3)), "heads", "'table.weight' depends"),
    "queries that share nothing": (fused, "queries", "several queries for each key"),
    "the width of shared heads": (shared_heads, "width", "heads that share keys"),
    "the width of rotated heads": (lambda: Rotary(**vars_of(fused())), "width", "turn pairs of entries"),
    "the width of normalized heads": (lambda: fused(q_norm=nn.LayerNorm(2)), "width", "normalized over"),
    "a norm over the units": (
        lambda: Block(fc1=nn.Linear(3, 5), norm=nn.LayerNorm(5), fc2=nn.Linear(5, 3)),
        "units", "'norm' depends on",
    ),
}  # fmt: skip


def vars_of(block):
    return {**dict(block.named_children()), "num_heads": block.num_heads}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_blocks(case):
    build, kind, problem = REFUSED[case]
    with pytest.raises(ValueError, match=rf"layer 'block' has no groups '{kind}': .*{problem}"):
        layer_groups("block", build(), kind)


def test_what_is_not_recognized_is_named_with_what_was_looked_for():
    strange = Block(first=nn.Linear(3, 5), second=nn.Linear(5, 3))
    for kind, needed in (
        ("heads", "q_proj/k_proj/v_proj/o_proj"),
        ("units", "fc1/fc2"),
        ("auto", "qkv/proj"),
    ):
        with pytest.raises(TypeError, match=rf"layer 'strange'.*{needed}.*"):
            TrimmedGroupL1(nn.ModuleDict({"strange": strange}), {"strange": 1}, groups=kind)
    for rnn, problem in (
        (nn.LSTM(3, 4, proj_size=2), "projects its hidden units"),
        (nn.RNNBase("GRU", 3, 4), "exactly"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"layer 'rnn'.* {problem}"):
            TrimmedGroupL1(nn.ModuleDict({"rnn": rnn}), {"rnn": 1})
    with pytest.raises(ValueError, match=r"each of \['rnn.l0', 'rnn.l1'\]"):
        layer_groups("rnn", nn.LSTM(3, 4, 2))
