"""Exported networks on disk: what is read is what was written, and a hostile file is refused."""

import json
import math
import operator
import os
import struct
from pathlib import Path

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from trimreg.nn.exporting import architecture
from trimreg.nn.exporting import files as serialize
from trimreg.nn.exporting.architecture import describe, rebuild
from trimreg.nn.exporting.export import export
from trimreg.nn.exporting.files import load, save, to_onnx
from trimreg.nn.penalty.trimmed_group_l1 import TrimmedGroupL1
from trimreg.nn.structure.tracing import tensors_in


class LeNet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.Sigmoid(), nn.Conv2d(8, 6, 3, padding=1)
        )
        self.norm = nn.BatchNorm2d(6)
        self.fc1, self.fc2 = nn.Linear(150, 20), nn.Linear(20, 4)
        self.shift = nn.Parameter(torch.randn(20))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.features(x))), 2)
        x = x.view(x.shape[0], -1)
        return self.fc2(F.leaky_relu(self.fc1(x) + self.shift, 0.1))


def small_lenet(repeats=0):
    model = LeNet5()
    model.norm.running_mean.normal_()
    penalty = TrimmedGroupL1(model, keep={"features.0": 3, "features.2": 4, "fc1": 20})
    return export(model, penalty, torch.randn(3, 1, 10, 10), repeats=repeats)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)
        self.other = nn.MultiheadAttention(8, 2, batch_first=True, bias=False)
        self.norm, self.act, self.head = nn.LayerNorm(8), nn.PReLU(), nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.table(tokens)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        x = self.act(x + self.other(x, x, x, need_weights=False)[0])
        return {"first": self.head(x[:, 0]), "all": (x[..., 1:], x.mean(1))}


# -- there and back ---------------------------------------------------------------------------------------


def test_lenet_comes_back(tmp_path):
    small = small_lenet()
    assert {"Gather", "Plane"} <= {type(m).__name__ for m in small.model.modules()}
    small.save(tmp_path / "net.safetensors")
    again = load(tmp_path / "net.safetensors")
    x = torch.randn(5, 1, 10, 10)
    assert torch.equal(again(x), small.model(x))
    assert not again.training
    assert set(again.state_dict()) == set(small.model.state_dict())
    assert all(p.requires_grad for p in again.parameters())
    save(again, tmp_path / "twice.safetensors")
    assert (tmp_path / "twice.safetensors").read_bytes() == (tmp_path / "net.safetensors").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["net.safetensors", "twice.safetensors"]


def test_a_file_of_version_1_is_read():
    """It was written before the modules moved to this folder."""
    again = load(Path(__file__).parent / "old_network.safetensors")
    assert {"Gather", "Plane"} <= {type(m).__name__ for m in again.modules()}
    expected = torch.tensor([[-0.03257951, 0.0055728]])
    torch.testing.assert_close(again(torch.ones(1, 1, 3, 3)), expected, rtol=0, atol=1e-6)


def test_attention_and_embeddings_come_back(tmp_path):
    tokens = torch.arange(18).reshape(2, 9) % 9
    model = Reader()
    small = export(model, TrimmedGroupL1(model, keep={"table": 4, "attention": 2}), tokens, repeats=0)
    assert {"MappedEmbedding", "SlimAttention"} <= {type(m).__name__ for m in small.model.modules()}
    small.save(tmp_path / "net")
    got, want = load(tmp_path / "net")(tokens), small.model(tokens)
    assert torch.equal(got["first"], want["first"])
    assert torch.equal(got["all"][0], want["all"][0])


LAYERS = [
    nn.Conv2d(3, 4, 3, (2, 1), 1, 2, padding_mode="circular", bias=False),
    nn.Conv2d(3, 6, 3, padding="same", groups=3), nn.ConvTranspose2d(3, 6, 3, groups=3, dilation=2),
    nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1, bias=False), nn.BatchNorm2d(3, eps=0.1, affine=False),
    nn.GroupNorm(3, 3), nn.InstanceNorm2d(3), nn.LayerNorm((6, 6)), nn.RMSNorm((6, 6), eps=0.1),
    nn.RMSNorm(6, elementwise_affine=False), nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    nn.AvgPool2d(2, 1, count_include_pad=False), nn.AdaptiveAvgPool2d((None, 2)), nn.Hardtanh(-2, 0.5),
    nn.ELU(0.3), nn.GELU("tanh"), nn.Threshold(0.1, 5.0), nn.Softplus(2, 3), nn.PReLU(3),
    nn.LeakyReLU(0.3, inplace=True), nn.Softmax(1), nn.Dropout(0.1), nn.Flatten(2), nn.Identity(),
    nn.Upsample(4), nn.Upsample(scale_factor=(2, 1.5), mode="bilinear", align_corners=True),
    nn.Upsample(scale_factor=2, mode="nearest-exact"), nn.UpsamplingNearest2d(scale_factor=2),
    nn.ZeroPad2d((1, 2, 0, 3)), nn.ConstantPad2d(1, 0.5), nn.ReflectionPad2d(2), nn.PixelUnshuffle(2),
    nn.GLU(3), nn.Unflatten(3, (2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_layers_come_back_with_their_arguments(layer):
    traced = fx.symbolic_trace(nn.Sequential(layer).eval())
    config = json.loads(json.dumps(describe(traced), allow_nan=False))
    again = rebuild(config, traced.state_dict())
    x = torch.randn(2, 3, 6, 6)
    assert torch.equal(again(x.clone()), traced(x.clone()))


@pytest.mark.parametrize(
    "steps",
    [
        lambda x: x**2 + 2**x,
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda x: x * (x > 0) + (x <= 1) * (x != 0) * (x < 5),
        lambda x: torch.where(torch.ge(x, 0), x, x * 0.1).masked_fill(x.eq(0), 3.0),
        lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
        lambda x: F.interpolate(x, size=(5, 4), mode="bilinear", align_corners=False),
        lambda x: F.pad(x, (1, 0, 2, 0), value=float("-inf")),
        lambda x: F.rms_norm(x, (6,), eps=0.1),
        lambda x: torch.sum(torch.stack([x, x.abs().sqrt()], 1), dim=1),
    ],
    ids=["pow", "norm", "compare", "where", "nearest", "bilinear", "pad", "rms_norm", "stack"],
)
def test_steps_come_back(steps, tmp_path):
    class Steps(nn.Module):
        def forward(self, x):
            return steps(x)

    traced = fx.symbolic_trace(Steps())
    save(traced, tmp_path / "net")
    x = torch.randn(2, 3, 6, 6)
    assert torch.equal(load(tmp_path / "net")(x), traced(x))


def test_every_type_of_number_comes_back(tmp_path):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            for number, dtype in enumerate(serialize._DTYPES.values()):
                self.register_buffer(f"b{number}", torch.tensor([[0, 1, 1]]).to(dtype))
            self.register_buffer("empty", torch.zeros(0, 4))
            self.register_buffer("scalar", torch.tensor(7))

        def forward(self, x):
            return tuple(getattr(self, name) for name, _ in self.named_buffers()), x

    traced = fx.symbolic_trace(Holder())
    save(traced, tmp_path / "net")
    for name, tensor in load(tmp_path / "net").state_dict().items():
        assert tensor.dtype == traced.state_dict()[name].dtype
        assert torch.equal(tensor, traced.state_dict()[name])


def test_the_safetensors_package_reads_the_weights(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    small = small_lenet()
    small.save(tmp_path / "net.safetensors")
    found = safetensors.load_file(tmp_path / "net.safetensors")
    assert set(found) == set(small.model.state_dict())
    assert all(torch.equal(found[name], tensor) for name, tensor in small.model.state_dict().items())


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net"
    path.write_bytes(b"old")
    small = small_lenet()

    def full(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        small.save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["net"]


def test_what_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(ValueError, match="Linear has no graph"):
        save(nn.Linear(2, 2), tmp_path / "net")
    instead = r".*to_onnx\(path\) instead, or torch.save its state_dict\(\)"
    with pytest.raises(ValueError, match=f"layer '0' is a Fold, which cannot be saved{instead}"):
        save(fx.symbolic_trace(nn.Sequential(nn.Fold(4, 2))), tmp_path / "net")

    class Step(nn.Module):
        def __init__(self, step):
            super().__init__()
            self.step = step

        def forward(self, x):
            return self.step(x)

    for step, message in [
        (torch.fft.fft, "calls fft_fft, which cannot be saved"),
        (lambda x: x.bernoulli(), "calls the method 'bernoulli', which cannot be saved"),
        (lambda x: torch.softmax(x, 1, dtype=torch.float64), "step 'softmax': an argument of type dtype"),
    ]:
        with pytest.raises(ValueError, match=message + instead):
            save(fx.symbolic_trace(Step(step)), tmp_path / "net")
    assert not os.listdir(tmp_path)


# -- hostile files ----------------------------------------------------------------------------------------


def tiny():
    """A description and its tensors, to be spoilt."""
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    return json.loads(json.dumps(describe(traced))), traced.state_dict()


def test_the_tiny_network_is_good():
    config, tensors = tiny()
    assert rebuild(config, tensors)(torch.zeros(1, 3)).shape == (1, 2)


def _set(*path):
    *keys, value = path

    def spoil(config):
        for key in keys[:-1]:
            config = config[key]
        config[keys[-1]] = value

    return spoil


EVIL = "__import__('os').abort()"


@pytest.mark.parametrize(
    "spoil",
    [
        _set("version", 2),
        _set("modules", "0", "kind", "Unknown"),
        _set("modules", "0", "kind", "os.system"),
        _set("modules", "0", "kind", ["Linear"]),
        _set("modules", "0", "arguments", {"in_features": 3, "out_features": 2, "device": "cuda"}),
        _set("modules", "0", "arguments", {"in_features": EVIL, "out_features": 2}),
        _set("modules", "0", "arguments", {"in_features": -3, "out_features": 2}),
        _set("modules", "0", "arguments", {"in_features": 10**30, "out_features": 2}),
        _set("modules", "0", "arguments", {"in_features": 10**9, "out_features": 10**8}),
        _set("modules", "0", "arguments", {"in_features": {"step": 0}, "out_features": 2}),
        _set("modules", f'a");{EVIL};("', {"kind": "ReLU", "arguments": {}}),
        _set("modules", "forward", {"kind": "ReLU", "arguments": {}}),
        _set("modules", "", {"kind": "ReLU", "arguments": {}}),
        _set("modules", "0.weight", {"kind": "ReLU", "arguments": {}}),
        _set("modules", None),
        _set("tensors", {"missing": "buffer"}),
        _set("tensors", {"0.weight": "parameter"}),
        _set("tied", {"0.weight": "missing"}),
        _set("tied", {"missing": "0.weight"}),
        _set("tied", {"0.weight": "0.bias"}),
        _set("tied", {"forward": "0.weight"}),
        _set("tied", {"0.__class__": "0.weight"}),
        _set("tied", ["0.weight"]),
        _set("steps", 1, "op", "call_function"),
        _set("steps", 1, "target", "nothing"),
        _set("steps", 0, "target", EVIL),
        _set("steps", 0, "target", "class"),
        _set("steps", 0, "target", "self"),
        _set("steps", 1, "kwargs", {"lambda": 1}),
        _set("steps", 1, "kwargs", {EVIL: 1}),
        _set("steps", 1, "args", [EVIL]),
        _set("steps", 1, "args", [{"step": 1}]),
        _set("steps", 1, "args", [{"step": -1}]),
        _set("steps", 1, "args", [{"step": True}]),
        _set("steps", 1, "args", [{"code": EVIL}]),
        _set("steps", 1, "args", [{"float": EVIL}]),
        _set("steps", 1, "args", [[{"step": 0}]]),
        _set("steps", 1, "args", [{"dict": {EVIL: 1}}]),
        _set("steps", {}),
        _set("steps", 1, None),
    ],
)  # fmt: skip
def test_hostile_descriptions_are_refused(spoil):
    config, tensors = tiny()
    spoil(config)
    with pytest.raises(ValueError):
        rebuild(config, tensors)


@pytest.mark.parametrize(
    ("op", "target", "more"),
    [
        ("call_function", "os.system", []),
        ("call_function", "torch.save", []),
        ("call_method", "__reduce__", []),
        ("call_method", "apply_", []),
        ("call_method", "numpy", []),
        ("call_function", "getattr", ["__class__"]),
        ("call_function", "getattr", []),
        ("get_attr", "__class__", []),
        ("get_attr", "0.__class__", []),
        ("get_attr", "0", []),
        ("call_module", "forward", []),
        ("placeholder", "x", []),
        ("root", "x", []),
    ],
)
def test_steps_that_are_not_in_the_tables_are_refused(op, target, more):
    config, tensors = tiny()
    step = {"op": op, "target": target, "args": [{"step": 0}, *more], "kwargs": {}}
    config["steps"].insert(1, step)
    for later in config["steps"][2:]:
        later["args"] = [{"step": later["args"][0]["step"] + (later["args"][0]["step"] > 0)}]
    with pytest.raises(ValueError, match=r"step 1 of the file, .* is not one that trimreg writes"):
        rebuild(config, tensors)
    step |= {"op": "call_method", "target": "relu", "args": [{"step": 0}]}
    assert rebuild(config, tensors)(torch.zeros(1, 3)).shape == (1, 2)  # nothing else was wrong


def test_tensors_that_do_not_fit_are_refused():
    config, tensors = tiny()
    for spoilt in (
        {**tensors, "0.weight": torch.zeros(2, 4)},
        {**tensors, "more": torch.zeros(1)},
        {"0.weight": tensors["0.weight"]},
    ):
        with pytest.raises(ValueError, match="does not describe a network"):
            rebuild(config, spoilt)


def test_a_deep_argument_is_refused():
    config, tensors = tiny()
    deep = 1
    for _ in range(20_000):
        deep = {"tuple": [deep]}
    config["steps"][1]["args"] = [deep]
    with pytest.raises(ValueError, match="recursion"):
        rebuild(config, tensors)


def test_changed_bytes_never_change_a_network(tmp_path, mutations):
    small_lenet().save(tmp_path / "net")
    good = (tmp_path / "net").read_bytes()
    (length,) = struct.unpack("<Q", good[:8])
    header, weights = good[: 8 + length], good[8 + length :]
    damaged = [one + weights for one in mutations(header)] + [header + one for one in mutations(weights)][:10]
    for changed in damaged:
        (tmp_path / "net").write_bytes(changed)
        if changed == good:
            continue
        with pytest.raises(ValueError) as caught:
            load(tmp_path / "net")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600


def test_damaged_files_are_refused(tmp_path):
    small = small_lenet()
    small.save(tmp_path / "net")
    good = (tmp_path / "net").read_bytes()
    (length,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + length])
    name = next(key for key in header if key != "__metadata__")

    entries = math.prod(header[name]["shape"])

    def packed(header):
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + good[8 + length :]

    def with_entry(**change):
        return packed(header | {name: header[name] | change})

    def with_metadata(metadata):
        return packed({**header, "__metadata__": metadata})

    spoilt = [
        b"", b"abc", good[:-1], good + b"\0", good[: 8 + length], struct.pack("<Q", 2**63) + good[8:],
        struct.pack("<Q", 5) + b"[1,2]", struct.pack("<Q", 4) + b"{{{{",
        with_metadata({}), with_metadata({serialize.KEY: 3}), with_metadata({serialize.KEY: "[" * 100_000}),
        with_entry(dtype="F128"), with_entry(dtype=["F32"]), with_entry(shape=[-1, -entries]),
        with_entry(shape=[True, entries]), with_entry(shape=[2**62, 4]), with_entry(data_offsets=[0, 10**12]),
        with_entry(data_offsets=[-4, 4]), with_entry(data_offsets=[0]), packed({**header, name: 3}),
    ]  # fmt: skip
    for content in spoilt:
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ValueError):
            load(tmp_path / "bad")
    (tmp_path / "fine").write_bytes(packed(header))  # it was the change that was refused
    assert load(tmp_path / "fine")(torch.zeros(2, 1, 10, 10)).shape == (2, 4)


def test_names_of_functions_are_one_to_one():
    for name, function in architecture.FUNCTIONS.items():
        assert architecture.FUNCTIONS[architecture.NAME_OF_FUNCTION[function]] is function, name
    assert architecture.NAME_OF_FUNCTION[operator.add] == "operator.add"


# -- ONNX -------------------------------------------------------------------------------------------------


def test_onnx_runs_equal_for_any_number_of_samples(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    small = small_lenet()
    small.to_onnx(tmp_path / "net.onnx")
    assert os.listdir(tmp_path) == ["net.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (entry,) = session.get_inputs()
    for samples in (1, 3, 7):
        x = torch.randn(samples, 1, 10, 10)
        with torch.no_grad():
            want = small.model(x)
        (got,) = session.run(None, {entry.name: x.numpy()})
        assert (torch.from_numpy(got) - want).abs().max() <= 1e-5 * want.abs().max()


class Mixed(nn.Module):
    """A network that takes other things beside a tensor; a dictionary comes last."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, nothing, scale, count, pair, named):
        return (self.layer(x) * scale + self.layer(pair[0]) + self.layer(pair[1][0])) * count + named["a"]


class AnyNumber(Mixed):
    def forward(self, x, *more):
        return self.layer(x) + self.layer(more[0])


class OneDictionary(Mixed):
    def forward(self, named):
        return self.layer(named["x"])


X = torch.linspace(-1, 1, 12).reshape(4, 3)


@pytest.mark.parametrize(
    ("model", "example", "inputs"),
    [
        (Mixed(), (X, None, 2.0, 3, (X, [X + 1]), {"a": X[:, :2]}), 4),
        (AnyNumber(), (X, X + 1), 2),
        (OneDictionary(), {"x": X}, 1),
    ],
    ids=["mixed", "any number", "dictionary"],
)
def test_onnx_of_inputs_that_are_no_tensors(model, example, inputs, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    small = export(model, None, example, repeats=0)
    small.to_onnx(tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    given = tensors_in(small.example)
    names = [one.name for one in session.get_inputs()]
    assert len(names) == len(given) == inputs
    with torch.no_grad():
        want = small.model(*small.example)
    for count in (4, 3):
        fed = {name: x[:count].numpy() for name, x in zip(names, given, strict=True)}
        torch.testing.assert_close(torch.from_numpy(session.run(None, fed)[0]), want[:count])


def test_an_input_that_onnx_cannot_take_is_named(tmp_path):
    pytest.importorskip("onnxscript")

    class Settings:
        scale = 2.0

    with pytest.raises(TypeError, match=r"the input named\['how'\] is a Settings, which ONNX cannot take"):
        to_onnx(OneDictionary(), ({"how": Settings()},), tmp_path / "net.onnx")
    assert not os.listdir(tmp_path)
