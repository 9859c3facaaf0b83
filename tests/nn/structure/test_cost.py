"""Multiply-accumulates against counts by hand: layers without a formula in PyTorch, examples of any form."""

import pytest
import torch
from nn_helpers import Net
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from trimreg.nn.exporting.export import export
from trimreg.nn.structure.cost import macs

# -- layers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_layers(kind, gates, bias):
    x = torch.zeros(5, 9, 6)
    assert macs(kind(6, 7, batch_first=True, bias=bias), (x,)) == 9 * gates * 7 * (6 + 7)
    deep = kind(6, 7, 2, batch_first=True, bidirectional=True, bias=bias)
    assert macs(deep, (x,)) == 9 * 2 * gates * 7 * ((6 + 7) + (14 + 7))


def test_an_lstm_of_as_many_samples_as_units_counts_no_states():
    assert macs(nn.LSTM(6, 7, batch_first=True), (torch.zeros(7, 9, 6),)) == 3276


def test_bilinear_layers():
    model = nn.Bilinear(3, 5, 2)
    assert macs(model, (torch.zeros(4, 3), torch.zeros(4, 5))) == 2 * 3 * 5
    assert macs(model, (torch.zeros(4, 6, 3), torch.zeros(4, 6, 5))) == 6 * 2 * 3 * 5
    assert macs(model, (torch.zeros(3), torch.zeros(5))) == 2 * 3 * 5


@pytest.mark.parametrize(
    ("product", "count"),
    [
        (lambda x, w: w @ x[0, 0], 8 * 5),
        (lambda x, w: torch.addmv(torch.zeros(8), w, x[0, 0]), 8 * 5),
        (lambda x, w: torch.dot(x[0, 0], x[0, 1]), 5),
        (lambda x, w: torch.addbmm(torch.zeros(4, 8), x, w.t().expand(3, 5, 8)), 3 * 4 * 5 * 8),
    ],
    ids=["mv", "addmv", "dot", "addbmm"],
)
def test_products_with_vectors_and_sums_of_products(product, count):
    model = Net(lambda m, x: product(x[0], torch.ones(8, 5)))
    assert macs(model, (torch.zeros(1, 3, 4, 5),)) == count


# -- what is a sample ---------------------------------------------------------------------------------------


def test_an_example_without_a_batch_axis_is_one_sample():
    assert macs(nn.Linear(12, 16), (torch.zeros(12),)) == 192
    assert macs(nn.Sequential(nn.Linear(12, 16), nn.Linear(16, 3)), (torch.zeros(12),)) == 192 + 48
    assert macs(nn.Conv2d(3, 4, 3), (torch.zeros(3, 8, 8),)) == 36 * 4 * 27
    assert macs(nn.Conv1d(3, 4, 3), (torch.zeros(3, 8),)) == 6 * 4 * 9
    assert macs(nn.LSTM(6, 7), (torch.zeros(9, 6),)) == 3276
    assert macs(nn.LSTM(6, 7, batch_first=True), (torch.zeros(9, 6),)) == 3276
    x = torch.zeros(5, 8)
    assert macs(nn.MultiheadAttention(8, 2), (x, x, x)) == 4 * 5 * 64 + 2 * 25 * 8
    sentence = Net(lambda m, tokens: m.b(m.a(tokens))[0], a=nn.Embedding(20, 6), b=nn.LSTM(6, 7))
    assert macs(sentence, (torch.zeros(9, dtype=torch.long),)) == 3276


def test_an_example_with_a_batch_axis_is_divided_by_it():
    assert macs(nn.Linear(12, 16), (torch.zeros(4, 12),)) == 192
    assert macs(nn.Linear(12, 16), (torch.zeros(4, 3, 12),)) == 3 * 192
    assert macs(nn.Conv2d(3, 4, 3), (torch.zeros(5, 3, 8, 8),)) == 36 * 4 * 27
    tokens = torch.zeros(4, dtype=torch.long)
    assert macs(nn.Sequential(nn.Embedding(20, 12), nn.Linear(12, 16)), (tokens,)) == 192
    scalars = Net(lambda m, x: m.a(x.unsqueeze(1)), a=nn.Linear(1, 16))
    assert macs(scalars, (torch.zeros(4),)) == 16
    one_by_one = Net(lambda m, x: torch.stack([m.a(image) for image in x]), a=nn.Conv2d(3, 4, 3))
    assert macs(one_by_one, (torch.zeros(5, 3, 8, 8),)) == 36 * 4 * 27


def test_samples_may_lie_along_the_second_axis():
    assert macs(nn.LSTM(6, 7), (torch.zeros(9, 5, 6),)) == 3276
    tokens = torch.zeros(9, 5, dtype=torch.long)
    sentences = Net(lambda m, t: m.b(m.p(m.a(t)))[0], a=nn.Embedding(20, 6), p=nn.ReLU(), b=nn.LSTM(6, 7))
    assert macs(sentences, (tokens,)) == 3276
    turned = Net(lambda m, x: m.a(x.transpose(0, 1))[0], a=nn.LSTM(6, 7))
    assert macs(turned, (torch.zeros(5, 9, 6),)) == 3276
    x = torch.zeros(5, 4, 8)
    assert macs(nn.MultiheadAttention(8, 2), (x, x, x)) == 4 * 5 * 64 + 2 * 25 * 8
    rows_of_images = Net(lambda m, x: m.a(x.flatten(0, 1).transpose(0, 1))[0], a=nn.LSTM(6, 7))
    assert macs(rows_of_images, (torch.zeros(2, 4, 9, 6),)) == 4 * 3276


def test_a_packed_sequence_is_divided_by_the_samples():
    def packed(m, tokens):
        return m.b(pack_padded_sequence(m.a(tokens), [9, 9, 9, 9], batch_first=True))[1]

    model = Net(packed, a=nn.Embedding(20, 6), b=nn.LSTM(6, 7, batch_first=True))
    assert macs(model, (torch.zeros(4, 9, dtype=torch.long),)) == 3276


def test_tensors_in_lists_and_dictionaries_have_samples_too():
    both = Net(lambda m, xs: m.a(xs[0]) + m.a(xs[1]), a=nn.Linear(12, 16))
    assert macs(both, ([torch.zeros(4, 12), torch.zeros(4, 12)],)) == 2 * 192
    named = Net(lambda m, d: m.a(d["x"]), a=nn.Linear(12, 16))
    assert macs(named, ({"x": torch.zeros(4, 12)},)) == 192


def test_the_model_is_left_without_hooks():
    model = nn.Linear(12, 16)
    macs(model, (torch.zeros(12),))
    with pytest.raises(RuntimeError):
        macs(model, (torch.zeros(13),))
    assert not model._forward_pre_hooks


def test_the_report_of_an_export_counts_recurrent_layers():
    model = Net(lambda m, x: m.b(m.a(x)[0]), a=nn.LSTM(6, 7, batch_first=True), b=nn.Linear(7, 2))
    model_report = export(model, None, torch.randn(4, 9, 6), repeats=0).report
    assert model_report.macs == (3276 + 9 * 14, 3276 + 9 * 14)
