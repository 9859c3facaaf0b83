"""Blocks of transformers and recurrent layers: trained to exact sizes, then exported with equal outputs."""

import copy

import pytest
import torch
from nn_helpers import exported, physical
from torch import nn
from torch.nn import functional as F

from trimreg.nn import Ramp, TrimmedGroupL1, export, load
from trimreg.nn.exporting.export import ExportError
from trimreg.nn.layers.slim import SlimAttention, SlimSelfAttention
from trimreg.nn.structure.tracing import relative_difference

quiet = pytest.mark.filterwarnings(
    "ignore:::transformers", "ignore:::torchao", "ignore:::torch.utils._pytree"
)
TOKENS = torch.randint(3, 20, (8, 6), generator=torch.Generator().manual_seed(1))
LABELS = (TOKENS[:, 0] > 10).long()


def trained(model, keep, loss, inputs, rank_by="norm", **options):
    """Train to exact sizes; the export, compared with the trained network on the inputs and on others."""
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    options |= {"h_schedule": Ramp(3, 20), "freeze_at": 20, "rank_by": rank_by}
    penalty = TrimmedGroupL1(model, keep, **options)
    penalty.attach(optimizer)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(loss(model))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    penalty.finalize_()
    model.eval()
    for name, layer in penalty.layers.items():
        assert ((layer.norms() > 0).sum(-1) == penalty.keep[name]).all(), name
    small = export(model, penalty, inputs, repeats=0)
    assert physical(small) == penalty.keep
    for before, after in (small.report.parameters, small.report.macs):
        assert after < before
    for x in (inputs, inputs.flip(0)[:3]):
        with torch.no_grad():
            assert relative_difference(model(x), small.model(x)) <= 1e-5
    return small


def comes_back(small, path, dense=None):
    """Whether the network is the same after saving and loading."""
    small.save(path)
    again = load(path, dense)
    return all(
        torch.equal(value, again.state_dict()[name]) for name, value in small.model.state_dict().items()
    )


def sizes_of(model, *names):
    return [tuple(model.get_parameter(f"{name}.weight").shape) for name in names]


def written(model, small):
    """Whether both networks write the same words after the same beginnings, also padded ones."""
    mask = torch.ones_like(TOKENS)
    mask[:3, :2] = 0
    options = {"attention_mask": mask, "max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    one, two = (network.generate(TOKENS, **options) for network in (model, small))
    return one.shape[1] > TOKENS.shape[1] and torch.equal(one, two)


# -- transformers -------------------------------------------------------------------------------------------

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


@quiet
def test_vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(**SIZES, image_size=8, patch_size=4, num_channels=1)
    model, images = ViTForImageClassification(config), torch.randn(8, 1, 8, 8)
    keep = {"vit.layers.0.attention": 3, "vit.layers.1.attention": 1, "*mlp": 12}
    small = trained(model, keep, lambda m: m(images, labels=LABELS).loss, images).model
    assert sizes_of(small.vit.layers, "0.attention.q_proj", "1.attention.o_proj") == [(12, 16), (16, 4)]
    assert (small.config.num_attention_heads, small.config.intermediate_size) == (4, 12)  # where all agree
    small.train()(images, labels=LABELS).loss.backward()


@quiet
def test_bert():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(**SIZES, vocab_size=20, max_position_embeddings=8)
    model, keep = BertForSequenceClassification(config), {"*self": 3, "*intermediate": 5}
    groups = {"bert.encoder.layer.1.attention.self": "width"}
    small = trained(model, keep, lambda m: m(TOKENS, labels=LABELS).loss, TOKENS, groups=groups).model
    heads, narrow = (layer.attention.self for layer in small.bert.encoder.layer)
    assert (heads.num_attention_heads, heads.attention_head_size, heads.all_head_size) == (3, 4, 12)
    assert (narrow.num_attention_heads, narrow.attention_head_size, narrow.all_head_size) == (4, 3, 12)


@quiet
def test_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**SIZES | {"num_attention_heads": 8}, num_key_value_heads=4, vocab_size=20)
    model, keep = LlamaForCausalLM(config), {"*self_attn": 2, "*mlp": 12}
    small = trained(model, keep, lambda m: m(TOKENS, labels=TOKENS).loss, TOKENS, rank_by="taylor").model
    assert sizes_of(small.model.layers[0], "self_attn.q_proj", "self_attn.k_proj") == [(8, 16), (4, 16)]
    assert written(model, small)
    again = LlamaForCausalLM(
        small.config
    ).eval()  # all layers have the same sizes, so the config has them too
    again.load_state_dict(small.state_dict())
    assert relative_difference(small(TOKENS), again(TOKENS)) == 0

    model, groups = LlamaForCausalLM(config), {"model.layers.0.self_attn": "queries"}
    penalty = TrimmedGroupL1(model, {"*self_attn": 1}, groups=groups, example_input=TOKENS)
    small = export(model, penalty, TOKENS, repeats=0).model
    penalty.finalize_()
    assert sizes_of(small.model.layers[0], "self_attn.q_proj", "self_attn.k_proj") == [(8, 16), (8, 16)]
    assert [layer.self_attn.num_key_value_groups for layer in small.model.layers] == [1, 2]
    assert written(model.eval(), small)


@quiet
def test_gpt2(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    words = {"vocab_size": 20, "n_positions": 16, "bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=4, **words))
    dense, keep = copy.deepcopy(model), {"*attn": 3, "*mlp": 12}
    groups = {"transformer.h.1.attn": "width"}
    small = trained(model, keep, lambda m: m(TOKENS, labels=TOKENS).loss, TOKENS, groups=groups)
    assert sizes_of(small.model.transformer.h, "0.attn.c_attn", "1.attn.c_proj") == [(16, 36), (12, 16)]
    assert small.model.lm_head.weight is small.model.transformer.wte.weight
    assert small.model.config.n_inner == 12
    assert written(model, small.model)
    path = tmp_path / "small.safetensors"
    assert comes_back(small, path, dense)
    again = load(path, dense)
    assert again.lm_head.weight is again.transformer.wte.weight
    for other, problem in (
        (None, r"load\(path, GPT2LMHeadModel"),
        (nn.Linear(2, 2), "does not fit this Linear"),
    ):
        with pytest.raises(ValueError, match=problem):
            load(path, other)
    with pytest.raises(ValueError, match=r"'lm_head': weight is shared: it is 'transformer.wte.weight'"):
        TrimmedGroupL1(model, {"lm_head": 4})


# -- timm and torch.nn --------------------------------------------------------------------------------------


class FusedAttention(nn.Module):
    """Queries, keys and values in one layer, as timm writes them, or as it did some years ago."""

    def __init__(self, old=False):
        super().__init__()
        self.num_heads, self.head_dim, self.attn_dim, self.scale, self.old = 4, 4, 16, 0.5, old
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.q_norm = self.k_norm = nn.Identity() if old else nn.LayerNorm(4)
        self.attn_drop, self.proj_drop = nn.Dropout(0.0), nn.Dropout(0.0)

    def forward(self, x):
        B, N, C = x.shape
        width = C // self.num_heads if self.old else self.head_dim
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, width).permute(2, 0, 3, 1, 4).unbind(0)
        attention = (self.q_norm(q) * self.scale @ self.k_norm(k).transpose(-2, -1)).softmax(dim=-1)
        x = (self.attn_drop(attention) @ v).transpose(1, 2).reshape(B, N, C if self.old else self.attn_dim)
        return self.proj_drop(self.proj(x))


class FusedBlock(nn.Module):
    def __init__(self, old):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(16), FusedAttention(old), nn.LayerNorm(16)
        self.mlp = nn.Sequential()
        self.mlp.fc1, self.mlp.act, self.mlp.fc2 = nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    """The encoder of torch.nn, with a mask of padding if one is given."""

    def __init__(self, **options):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 2)

    def forward(self, x, padding=None):
        return self.head(self.encoder(x, src_key_padding_mask=padding)[:, 0])


def difference_loss(x, wanted):
    return lambda model: F.mse_loss(model(x), wanted)


@pytest.mark.parametrize("old", [False, True])
def test_fused_attention_as_in_timm(old, tmp_path):
    model, x = nn.Sequential(FusedBlock(old), FusedBlock(old)), torch.randn(6, 5, 16)
    dense = copy.deepcopy(model)
    keep = {"0.attn": 2, "1.attn": 3, "*mlp": 10}
    small = trained(model, keep, difference_loss(x, x.flip(1)), x)
    kind = SlimSelfAttention if old else FusedAttention
    assert isinstance(small.model.get_submodule("0.attn"), kind)
    assert comes_back(small, tmp_path / "small.safetensors", None if small.cuts is None else dense)
    if old:
        exported(dense, {"*attn": 2}, x, groups="width")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_encoder_of_torch(tmp_path):
    model, x = Encoder(), torch.randn(6, 5, 16)
    dense, keep = copy.deepcopy(model), {"encoder.layers.0.self_attn": 3, "encoder.layers.*": 10}
    small = trained(model, keep, difference_loss(x, x[:, 1, :2]), x)
    first, second = small.model.encoder.layers
    assert isinstance(first.self_attn, SlimAttention)
    assert isinstance(second.self_attn, nn.MultiheadAttention)
    assert comes_back(small, tmp_path / "small.safetensors", dense)
    padding = torch.arange(5) >= torch.tensor([5, 3, 2, 5, 4, 1])[:, None]
    with torch.no_grad():
        assert relative_difference(model(x, padding), small.model(x, padding)) <= 1e-5
    exported(nn.TransformerEncoderLayer(16, 4, 8, norm_first=True, bias=False), {"self_attn": 1}, x)
    exported(nn.TransformerEncoderLayer(16, 4, 8), {"self_attn": 3}, x, groups="width")


def test_a_block_that_cannot_get_smaller_is_named():
    class Fixed(FusedAttention):
        def forward(self, x):
            return super().forward(x).reshape(-1, 5, 16) + self.qkv(x)[..., :16]

    model = nn.Sequential(Fixed())
    penalty = TrimmedGroupL1(model, {"0": 1})
    with pytest.raises(ExportError, match=r"Sequential fails with smaller blocks .* leave '0' out"):
        export(model, penalty, torch.randn(2, 5, 16), repeats=0)


# -- recurrent layers ---------------------------------------------------------------------------------------


class Reads(nn.Module):
    """A recurrent layer, and a linear layer that reads its output or its last states."""

    def __init__(self, kind, read, **options):
        super().__init__()
        self.rnn, self.read = kind(5, 8, batch_first=True, **options), read
        self.head = nn.Linear(8 * (1 + options.get("bidirectional", False)), 2)

    def forward(self, x):
        out, state = self.rnn(x)
        state = state[0] if isinstance(self.rnn, nn.LSTM) else state
        return self.head(self.read(out, state))


READS = {
    "last step": (nn.LSTM, lambda out, state: out[:, -1], {}),
    "mean": (nn.GRU, lambda out, state: out.mean(1), {"bidirectional": True}),
    "state": (nn.GRU, lambda out, state: state[-1], {"num_layers": 2, "bias": False}),
    "states": (
        nn.LSTM, lambda out, state: torch.cat([state[-2], state[-1]], 1),
        {"num_layers": 2, "bidirectional": True},
    ),
    "one layer's state": (nn.RNN, lambda out, state: state.squeeze(0), {"nonlinearity": "relu"}),
}  # fmt: skip


@pytest.mark.parametrize("how", READS)
def test_recurrent_layers(how, tmp_path):
    kind, read, options = READS[how]
    model, x = Reads(kind, read, **options), torch.randn(6, 4, 5)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    penalty = TrimmedGroupL1(model, {"rnn": 3}, h_schedule=Ramp(2, 10), rank_by="taylor", freeze_at=10)
    penalty.attach(optimizer)
    for _ in range(15):
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, 1, :2]).backward()
        optimizer.step()
    penalty.finalize_()
    small = export(model, penalty, x, repeats=0)
    assert set(physical(small).values()) == {3}
    assert len(physical(small)) == options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    assert type(small.model.rnn) is kind
    assert (small.model.rnn.hidden_size, small.model.head.in_features) == (3, 3 * model.head.in_features // 8)
    longer = torch.randn(2, 9, 5)
    with torch.no_grad():
        assert relative_difference(model(longer), small.model(longer)) <= 1e-5
    assert comes_back(small, tmp_path / "small.safetensors")


def test_inputs_of_a_recurrent_layer_that_are_not_computed():
    model = nn.Sequential(nn.Linear(6, 5), Reads(nn.LSTM, lambda out, state: out[:, 0]))
    with torch.no_grad():
        model[0].weight[1], model[1].rnn.weight_ih_l0[:, 3] = 0, 0  # a constant input, and an unread one
    small = exported(model, {"1.rnn": 7}, torch.randn(4, 3, 6)).model
    assert (small.get_submodule("0").out_features, small.get_submodule("1.rnn").input_size) == (4, 4)


def test_inputs_that_are_hidden_units_are_chosen_among_the_kept_ones():
    model, x = Reads(nn.LSTM, lambda out, state: out.mean(1), bidirectional=True), torch.randn(6, 4, 5)
    for inputs in (4, 3):
        penalty = TrimmedGroupL1(model, {"rnn": 2, "head": inputs}, example_input=x)
        assert physical(export(model, penalty, x, repeats=0)) == penalty.keep
    with pytest.raises(ValueError, match=r"'head' reads the channels of 'rnn.l0', .* at most 4, .* got 5"):
        TrimmedGroupL1(model, {"rnn": 2, "head": 5}, example_input=x)


def test_hidden_units_that_must_stay():
    def states(out, state):
        return state.transpose(0, 1).flatten(1)

    model, x = Reads(nn.GRU, states, bidirectional=True), torch.randn(4, 3, 5)
    small = exported(model, {"rnn": 3}, x)
    assert physical(small) == {"rnn.l0": 8, "rnn.l0_reverse": 8}
    assert "states of several layers" in small.report.layers[0].note
    with pytest.raises(
        ExportError, match=r"'rnn.l0' has 8 units after the export, but keep asks for 3; kept by"
    ):
        export(model, TrimmedGroupL1(model, {"rnn": 3}, example_input=x), x, repeats=0)

    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(5, 8, batch_first=True), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.rnn(x, torch.ones(1, 4, 8))[0])

    small = export(model := Given(), TrimmedGroupL1(model, {"rnn": 3}), x, repeats=0)
    assert "initial state" in small.report.layers[0].note

    class Branches(Given):
        def forward(self, x):
            return self.head(self.rnn(x)[0]) if x.sum() < 1e9 else x

    with pytest.raises(ExportError, match=r"'rnn' can get smaller only by tracing: Branches.forward"):
        export(model := Branches(), TrimmedGroupL1(model, {"rnn": 3}), x, repeats=0)
    with pytest.raises(ExportError, match=r"'rnn': 5 of its cut groups .* its kind \(GRU\) without a traced"):
        export(model, TrimmedGroupL1(model, {"rnn": 3}), x, repeats=0, method="dependency")
    assert export(model, None, x, repeats=0).report.layers[0].physical == 8
