"""Exports that go from one method to the other, steps over space, and what the caller has set around them."""

import sys

import pytest
import torch
from nn_helpers import Net, Reader, physical
from nn_helpers import exported as exported_on
from torch import nn
from torch.nn import functional as F

from trimreg.nn.exporting.export import export
from trimreg.nn.exporting.files import load
from trimreg.nn.layers.slim import SlimAttention
from trimreg.nn.penalty.trimmed_group_l1 import TrimmedGroupL1
from trimreg.nn.structure.spaces import ExportError
from trimreg.nn.structure.tracing import TracingFailed


def exported(model, keep, x, groups="auto", **options):
    """The export is compared on images of another size as well."""
    larger = [torch.randn(2, *x.shape[1:2], *(n + 3 for n in x.shape[2:]))] if x.dim() == 4 else []
    return exported_on(model, keep, x, *larger, groups=groups, **options)


def images():
    return torch.randn(4, 3, 9, 9)


def mlp():
    return nn.Sequential(nn.Linear(3, 8), nn.Sigmoid(), nn.Linear(8, 2))


# -- walks of torch-pruning that do not end ---------------------------------------------------------------


class Nested(nn.Module):
    """It cannot be traced, and torch-pruning counts the channels of its concatenations up for ever."""

    def __init__(self):
        super().__init__()
        self.c, self.bn, self.fc = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(3), nn.Linear(15 * 36, 7)

    def forward(self, x):
        if float(x.max()) > 1e30:
            x = -x
        a = self.c(x)
        return self.fc(torch.cat([torch.cat((a, self.bn(x)), 1).flatten(1), a.flatten(1)], 1))


@pytest.mark.parametrize("keep", [{"c": 3}, {"fc": 200}])
def test_a_walk_that_does_not_end_is_left(keep):
    pytest.importorskip("torch_pruning")
    model = Nested()
    penalty = TrimmedGroupL1(model, keep=keep)
    x = torch.randn(4, 3, 6, 6)
    (name,) = keep
    with pytest.raises(ExportError, match=rf"layer '{name}': .* cannot follow.*with strict=False they stay"):
        export(model, penalty, x, repeats=0)
    small = export(model, penalty, x, repeats=0, strict=False)
    assert physical(small)[name] == {"c": 6, "fc": 540}[name]
    assert "cannot follow" in small.report.layers[0].note
    penalty.finalize_()
    with torch.no_grad():
        assert torch.allclose(small.model(x), model.eval()(x), atol=1e-5)


def test_long_walks_that_end_are_not_cut_short():
    """Concatenations of concatenations: what one channel is coupled to lies in every later layer."""
    pytest.importorskip("torch_pruning")
    depth = 12

    def steps(m, x):
        x = m.stem(x)
        for i in range(depth):
            x = torch.cat([x, F.relu(m.get_submodule(f"c{i}")(x))], 1)
        return m.last(x)

    layers = {f"c{i}": nn.Conv2d(4 + 4 * i, 4, 3, padding=1) for i in range(depth)}
    model = Net(steps, stem=nn.Conv2d(3, 4, 1), last=nn.Conv2d(4 + 4 * depth, 2, 3), **layers)
    assert physical(exported(model, {"c0": 2, "c5": 3}, images(), method="dependency")) == {"c0": 2, "c5": 3}


# -- the second method before an error --------------------------------------------------------------------


def rolled():
    """Tracing does not know ``roll``; torch-pruning takes what it does not know to leave channels alone."""
    return Net(
        lambda m, x: m.c(torch.roll(F.relu(m.a(x)), 1, 2)).mean((2, 3)) + m.b(x.mean((2, 3))),
        a=nn.Conv2d(3, 8, 3), b=nn.Linear(3, 2), c=nn.Conv2d(8, 2, 3),
    )  # fmt: skip


def test_auto_takes_the_second_method_where_the_first_would_fail():
    pytest.importorskip("torch_pruning")
    with pytest.raises(ExportError, match=r"layer 'a': 4 of its cut groups .* roll"):
        exported(rolled(), {"a": 4}, images(), method="trace")
    small = exported(rolled(), {"a": 4}, images())
    assert physical(small) == {"a": 4}
    assert type(small.model) is Net


def test_the_second_method_is_not_taken_if_it_loses_elsewhere():
    """It cannot gather the inputs that a linear layer keeps, so its network would be larger there."""
    pytest.importorskip("torch_pruning")
    by_graph = exported(rolled(), {"a": 4, "b": 1}, images(), method="dependency")
    assert physical(by_graph) == {"a": 4, "b": 3}
    with pytest.raises(ExportError, match=r"layer 'a': 4 of its cut groups .* roll"):
        exported(rolled(), {"a": 4, "b": 1}, images())


def test_a_transformer_layer_is_shrunk_by_its_dependencies():
    pytest.importorskip("torch_pruning")
    layer = nn.TransformerEncoderLayer(8, 4, 16, batch_first=True, dropout=0.0)
    small = exported(nn.Sequential(nn.Linear(5, 8), layer), {"1.linear2": 4}, torch.randn(2, 3, 5))
    assert physical(small) == {"1.linear2": 4}
    assert small.model[1].linear1.out_features == 4


class Unknown(nn.Conv2d):
    """A layer with weights that no method knows, and that tracing does not look into."""

    __module__ = "torch.nn"


def test_the_first_error_stays_if_the_second_method_fails_too(monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), Unknown(8, 2, 3))
    penalty = TrimmedGroupL1(model, keep={"0": 4})
    with pytest.raises(ExportError) as first:
        export(model, penalty, images(), repeats=0, method="trace")
    with pytest.raises(ExportError) as both:
        export(model, penalty, images(), repeats=0)
    assert str(both.value) == str(first.value)
    monkeypatch.setitem(sys.modules, "torch_pruning", None)  # not installed
    with pytest.raises(ExportError) as alone:
        export(model, penalty, images(), repeats=0)
    assert str(alone.value) == str(first.value)


@pytest.mark.parametrize("method", ["auto", "dependency"])
def test_strict_by_dependencies_names_the_layer_that_is_not_known(method):
    pytest.importorskip("torch_pruning")
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), Unknown(8, 2, 3))
    with pytest.raises(ExportError, match=r"layer '0': 4 of its cut groups .* 2 \(Unknown\)"):
        exported(model, {"0": 4}, images(), method=method)
    small = exported(model, {"0": 4}, images(), method="dependency", strict=False)
    assert physical(small) == {"0": 8}
    assert small.report.layers[0].note == "kept by 2 (Unknown)"


def test_strict_by_dependencies_allows_what_is_known():
    pytest.importorskip("torch_pruning")
    small = exported(nn.Sequential(nn.Conv2d(3, 8, 3)), {"0": 4}, images(), method="dependency")
    assert small.report.layers[0].note == "kept by the network's output"
    model = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    small = exported(model, {"0": 4}, torch.randn(3, 5), "out", method="dependency")
    assert small.report.layers[0].note == "kept by 1 (LayerNorm)"


def test_prelu_gives_zero_for_zero():
    pytest.importorskip("torch_pruning")
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.PReLU(8), nn.Conv2d(8, 2, 3))
    assert physical(exported(model, {"0": 4}, images(), method="dependency")) == {"0": 4}


# -- steps over space -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        nn.Upsample(scale_factor=2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Upsample(size=(12, 13), mode="nearest"),
        nn.UpsamplingBilinear2d(scale_factor=2),
        nn.ReflectionPad2d(2),
        nn.ReplicationPad2d((1, 0, 2, 0)),
        nn.ConstantPad2d(1, 0.5),
        nn.ZeroPad2d((1, 2, 0, 1)),
    ],
    ids=lambda step: type(step).__name__,
)
def test_channels_go_through_resizing_and_padding(step, tmp_path):
    for act, of_zero in ((nn.ReLU, 0.0), (nn.Sigmoid, 0.5)):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), act(), step, nn.Conv2d(8, 2, 3))
        small = exported(model, {"0": 4}, images(), method="trace")
        number = {nn.ZeroPad2d: 0.0, nn.ConstantPad2d: 0.5}.get(type(step), of_zero)
        # With a border of another number a channel is not constant any more.
        assert physical(small) == {"0": 4 if number == of_zero else 8}
    small.save(tmp_path / "net")
    with torch.no_grad():
        x = images()
        assert torch.equal(load(tmp_path / "net")(x), small.model(x))


@pytest.mark.parametrize(
    "step",
    [
        lambda h: F.interpolate(h, scale_factor=2),
        lambda h: F.interpolate(h, size=h.shape[2:], mode="bilinear"),
        lambda h: F.interpolate(input=h, size=h.shape[-2:]),
        lambda h: F.pad(h, (1, 1)),
        lambda h: F.pad(h, pad=(1, 2, 3, 0), mode="reflect"),
    ],
)
def test_channels_go_through_interpolation_and_padding(step):
    model = Net(lambda m, x: m.b(step(F.relu(m.a(x)))), a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 2, 3))
    assert physical(exported(model, {"a": 4}, images(), method="trace")) == {"a": 4}


def test_padding_that_adds_channels_is_not_known():
    def network():
        return Net(
            lambda m, x: m.b(F.pad(F.relu(m.a(x)), (0, 0, 0, 0, 1, 1))),
            a=nn.Conv2d(3, 8, 3),
            b=nn.Conv2d(10, 2, 3),
        )

    with pytest.raises(ExportError, match="pad, which the export does not know"):
        exported(network(), {"a": 4}, images())
    assert physical(exported(network(), {"a": 4}, images(), strict=False)) == {"a": 8}


def test_a_synchronized_batch_norm_is_a_batch_norm():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SyncBatchNorm(8), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
    nn.init.normal_(model[1].bias)
    model[1].running_mean.normal_()
    small = exported(model, {"0": 4}, images())
    assert physical(small) == {"0": 4}
    assert isinstance(small.model.get_submodule("1"), nn.SyncBatchNorm)


# -- what a graph does not say ----------------------------------------------------------------------------


def test_parts_that_a_step_gives_are_held():
    def network():
        return Net(
            lambda m, x: m.b(torch.cat(torch.chunk(m.a(x), 2, 1), 1)), a=nn.Linear(3, 8), b=nn.Linear(8, 2)
        )

    with pytest.raises(ExportError, match=r"layer 'a': 4 of its cut groups .* chunk"):
        exported(network(), {"a": 4}, torch.randn(4, 3), "out", method="trace")
    small = exported(network(), {"a": 4}, torch.randn(4, 3), "out", strict=False)
    assert physical(small) == {"a": 8}


def test_writing_under_a_second_name_is_no_fault_of_the_export():
    pytest.importorskip("torch_pruning")

    def steps(m, x):
        h = m.a(x)
        k = h
        k += 1.0
        return m.c(h.relu() + m.b(k))

    def network():
        return Net(steps, a=nn.Linear(3, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 2))

    with pytest.raises(
        TracingFailed, match=r"Net.forward gives other outputs .*in place under a second name"
    ):
        exported(network(), {"c": 4}, torch.randn(4, 3), method="trace")
    assert type(exported(network(), {"c": 4}, torch.randn(4, 3)).model) is Net


def test_attention_called_by_keywords():
    def network(call):
        return Net(call, attention=nn.MultiheadAttention(8, 4, batch_first=True))

    for call in (
        lambda m, x: m.attention(query=x, key=x, value=x, need_weights=False)[0],
        lambda m, x: m.attention(x, value=x, key=x)[0],
    ):
        small = exported(network(call), {"attention": 2}, torch.randn(2, 3, 8))
        assert physical(small) == {"attention": 2}
        assert isinstance(small.model.attention, SlimAttention)


def test_sizes_read_by_keyword():
    model = Net(
        lambda m, x: m.b((h := m.a(x)).view(h.size(dim=0), -1) + h.size(dim=1)),
        a=nn.Linear(3, 8),
        b=nn.Linear(8, 2),
    )
    small = exported(model, {"b": 4}, torch.randn(4, 3), method="trace")
    assert physical(small) == {"b": 4}
    assert small.model.a.out_features == 4


# -- what the caller has set ------------------------------------------------------------------------------


@pytest.fixture
def default_on_meta():
    """Stands for a default device that is another than the model's."""

    def switch():
        torch.set_default_device("meta")

    yield switch
    torch.set_default_device(None)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.PReLU(8), nn.Conv2d(8, 4, 3, padding=1),
        nn.Sigmoid(), nn.Conv2d(4, 4, 3, padding=1), nn.Flatten(), nn.Linear(324, 2),
    )  # fmt: skip


@pytest.mark.parametrize("method", ["trace", "dependency"])
@pytest.mark.parametrize("kind", ["convolutions", "reader"])
def test_under_another_default_device(default_on_meta, method, kind):
    if method == "dependency":
        pytest.importorskip("torch_pruning")
    if kind == "convolutions":
        model, keep, x = convolutions(), {"0": 4, "3": 2, "7": 20}, images()
    else:
        model, keep, x = Reader(), {"table": 5, "attention": 2, "head": 4}, torch.randint(11, (4, 6))
    penalty = TrimmedGroupL1(model, keep=keep)
    default_on_meta()
    small = export(model, penalty, x, repeats=2, method=method, strict=False)
    assert {t.device.type for t in small.model.state_dict().values()} == {"cpu"}
    if method == "trace":
        assert physical(small) == keep
    penalty.finalize_()
    with torch.no_grad():
        assert torch.allclose(small.model(x), model.eval()(x), atol=1e-5)
    assert torch.get_default_device().type == "meta"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_network_takes_a_float_example(dtype):
    model = mlp().to(dtype)
    small = export(model, TrimmedGroupL1(model, keep={"2": 4}), torch.randn(5, 3), repeats=2)
    assert small.example[0].dtype == dtype
    assert small.model(*small.example).dtype == dtype


def test_an_example_without_values_is_refused():
    model = mlp()
    with pytest.raises(ValueError, match="example_input is on the meta device"):
        export(model, TrimmedGroupL1(model, keep={"2": 4}), torch.randn(5, 3, device="meta"))


def test_under_autocast():
    """In half precision, what a bias takes over would differ from what was added up."""
    model = nn.Sequential(nn.Linear(20, 64), nn.Sigmoid(), nn.Linear(64, 5))
    penalty = TrimmedGroupL1(model, keep={"0": 8}, groups="out")
    x = torch.randn(5, 20)
    with torch.autocast("cpu"):
        small = export(model, penalty, x, repeats=2)
        assert torch.is_autocast_enabled("cpu")
    penalty.finalize_()
    assert physical(small) == {"0": 8}
    assert torch.allclose(small.model(x), model(x), atol=1e-5)


@pytest.mark.parametrize("method", ["trace", "dependency"])
@pytest.mark.parametrize("all_inside", [False, True])
def test_what_inference_mode_exports_can_be_trained(method, all_inside):
    if method == "dependency":
        pytest.importorskip("torch_pruning")
    model, x = mlp(), torch.randn(5, 3)
    penalty = TrimmedGroupL1(model, keep={"2": 4})
    with torch.inference_mode():
        if all_inside:
            model, x = mlp(), torch.randn(5, 3)
            penalty = TrimmedGroupL1(model, keep={"2": 4})
        small = export(model, penalty, x, repeats=2, method=method)
    assert physical(small) == {"2": 4}
    small.model(*small.example).sum().backward()
    assert all(p.grad is not None for p in small.model.parameters())
    half = mlp().bfloat16()
    with torch.inference_mode():
        small = export(half, None, x, repeats=2, method=method)
    small.model(*small.example).sum().backward()


@pytest.mark.parametrize("penalty", [{"0": 3}, "0", 3])
def test_sizes_in_place_of_the_penalty_are_refused(penalty):
    with pytest.raises(TypeError, match=r"penalty must be a TrimmedGroupL1 or None; got \w+\. .*keep="):
        export(mlp(), penalty, torch.randn(4, 3))


@pytest.mark.parametrize("shape", [(4, 8), (4, 5, 8), (8,), (2, 3, 5, 8)])
@pytest.mark.parametrize("example", [(4, 8), (4, 5, 8)])
def test_gathered_inputs_may_have_other_axes_in_front(example, shape):
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    penalty = TrimmedGroupL1(model, {"0": 3, "2": 4})
    small = export(model, penalty, torch.randn(example), repeats=0)
    penalty.finalize_()
    x = torch.randn(shape)
    torch.testing.assert_close(small.model(x), model(x))
