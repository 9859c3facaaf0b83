"""Callbacks against the real Lightning and transformers: exact sizes, and a break changes nothing."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from trimreg.nn import export
from trimreg.nn.callbacks import Pruning, checked_fractions, is_of, optimizer_of
from trimreg.nn.penalty.schedules import Ramp
from trimreg.nn.penalty.trimmed_group_l1 import TrimmedGroupL1

KEEP = {"net.0": 3, "net.2": 4}
WAY = {"alpha": 0.5, "mode": "bcd", "tau": 0.1, "alpha_schedule": Ramp(0, 10), "freeze_at": 8}


def data():
    draw = torch.Generator().manual_seed(1)
    X = torch.randn(40, 8, generator=draw)
    return X, X[:, :1] + X[:, 1:2] * X[:, 2:3]


def sizes(penalty):
    """Groups that are not zero, as the weights say."""
    return {name: int((layer.norms() > 0).sum()) for name, layer in penalty.layers.items()}


def values(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def assert_same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    assert a.keys() == b.keys()
    assert [key for key in a if not torch.equal(a[key], b[key])] == []


# -- what they share ---------------------------------------------------------------------------------------


def linear_and_optimizer(lr=0.1):
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 2))
    return model, torch.optim.SGD(model.parameters(), lr=lr)


def test_a_wrong_option_is_refused_before_any_training():
    with pytest.raises(TypeError, match="freeze_after"):
        Pruning({"0": 3}, freeze_after=4)
    with pytest.raises(ValueError, match=r"penalty\.loss\(\)"):
        Pruning({"0": 3}, alpha=1.0, mode="subgradient")
    with pytest.raises(ValueError, match="during replaces"):
        Pruning({"0": 3}, during=(0.1, 0.5), freeze_at=10)


@pytest.mark.parametrize(
    "during", [0.5, (0.5,), (0.5, 0.1), (-0.1, 0.5), (0.1, 1.5), ("a", "b"), (0.1, math.nan)]
)
def test_fractions_that_are_none_are_refused(during):
    with pytest.raises(ValueError, match="two fractions"):
        checked_fractions(during)


def test_fractions_become_steps():
    for steps, end in ((40, 10), (1, 1)):
        model, optimizer = linear_and_optimizer()
        pruning = Pruning({"0": 3}, during=(0.0, 0.25))
        pruning.begin(model, [optimizer], steps)
        assert (pruning.penalty.h_schedule, pruning.penalty.freeze_at) == (Ramp(0, end), end)
    for steps, end in ((100, 60), (math.inf, 190)):  # by default h falls by itself
        model, optimizer = linear_and_optimizer()
        pruning = Pruning({"0": 3})
        pruning.begin(model, [optimizer], steps)
        assert int(pruning.penalty.freeze_at) == end
    with pytest.raises(ValueError, match="known length"):
        Pruning({"0": 3}, during=(0.0, 0.25)).begin(model, [optimizer], steps=math.inf)


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
def test_the_step_is_taken_between_begin_and_end_only():
    model, optimizer = linear_and_optimizer()
    pruning = Pruning({"0": 3})
    pruning.end()  # nothing to end yet
    pruning.begin(model, [optimizer], steps=0)
    pruning.begin(model, [optimizer], steps=0)  # a training that broke off left it attached
    for count in (1, 2):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        assert int(pruning.penalty.step) == count
    pruning.end()
    optimizer.step()
    assert int(pruning.penalty.step) == 2
    assert bool(pruning.penalty.frozen)


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
def test_another_training_of_the_same_model_keeps_the_structure_and_another_model_gets_its_own():
    model, optimizer = linear_and_optimizer()
    pruning = Pruning({"0": 3})
    pruning.begin(model, [optimizer], steps=0)
    pruning.end()
    first = pruning.penalty
    pruning.begin(model, [optimizer], steps=0)
    assert pruning.penalty is first
    other, its_optimizer = linear_and_optimizer()
    assert is_of(first, model)
    assert not is_of(first, other)
    pruning.begin(other, [its_optimizer], steps=0)
    assert pruning.penalty is not first
    assert not pruning.penalty.frozen


def test_a_callback_couples_channels():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3))
    pruning = Pruning({"0": 2}, example_input=torch.randn(2, 1, 6, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruning.begin(model, [optimizer], steps=1)
    model(torch.randn(2, 1, 6, 6)).square().sum().backward()
    optimizer.step()
    pruning.penalty.freeze_()
    pruning.end()
    assert int((model[1].bias != 0).sum()) == int((model[1].weight != 0).sum()) == 2


def test_of_several_optimizers_the_one_with_the_layers_is_taken():
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 2))
    each = [torch.optim.SGD(model[place].parameters(), lr=0.1) for place in (0, 2)]
    assert optimizer_of(TrimmedGroupL1(model, {"2": 1}), each) is each[1]
    with pytest.raises(ValueError, match=r"none of the 2 optimizers has all of the layers \['0', '2'\]"):
        optimizer_of(TrimmedGroupL1(model, {"*": 1}), each)
    with pytest.raises(ValueError, match="'2': the optimizer does not have its weight"):
        Pruning({"2": 1}).begin(model, each[:1], steps=0)


def test_networks_work_without_the_frameworks_and_name_the_extra_where_one_is_asked_for():
    code = """
import sys, trimreg.nn, trimreg.nn.callbacks
assert trimreg.nn.TrimmedGroupL1 is trimreg.nn.callbacks.TrimmedGroupL1
print({"lightning", "transformers", "accelerate"} & set(sys.modules))
for package in ("lightning", "transformers"):
    sys.modules[package] = None  # as if it were not installed
    try:
        __import__(f"trimreg.nn.{package}")
    except ImportError as error:
        print(error)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, lightning, transformers = answer.stdout.strip().splitlines()
    assert loaded == "set()"
    assert lightning.endswith("pip install 'trimreg[lightning]'")
    assert transformers.endswith("pip install 'trimreg[transformers]'")


# -- Lightning ---------------------------------------------------------------------------------------------


def lightning_module():
    from lightning.pytorch import LightningModule

    class Regression(LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))

        def training_step(self, batch, _):
            return functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.02)

    return Regression()


def fit(module, callback, folder=None, epochs=4, **options):
    """Train, with a checkpoint of every epoch if there is a folder."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    saving = [] if folder is None else [ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)]
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu", max_epochs=epochs, callbacks=[callback, *saving],
        enable_checkpointing=folder is not None, **quiet,
    )  # fmt: skip
    trainer.fit(module, DataLoader(TensorDataset(*data()), batch_size=8), **options)  # 5 steps an epoch
    return trainer


quiet_lightning = pytest.mark.filterwarnings("ignore:::lightning")


@quiet_lightning
def test_lightning_resumed_is_lightning_without_a_break(tmp_path):
    from trimreg.nn.lightning import TrimmedPruning

    whole, callback = lightning_module(), TrimmedPruning(KEEP, **WAY)
    fit(whole, callback, tmp_path, epochs=2)
    assert sizes(callback.penalty) == KEEP
    assert int(callback.penalty.step) == 10

    resumed, again = lightning_module(), TrimmedPruning(KEEP, **WAY)
    fit(resumed, again, epochs=2, ckpt_path=tmp_path / "epoch=0.ckpt", weights_only=True)
    assert int(again.penalty.step) == 10
    assert torch.equal(values(resumed), values(whole))
    assert_same_state(again.penalty, callback.penalty)


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
@quiet_lightning
def test_a_checkpoint_of_lightning_is_not_finalized_and_another_fit_trains_on(tmp_path):
    from trimreg.nn.lightning import TrimmedPruning

    module, callback = lightning_module(), TrimmedPruning(KEEP, alpha=1e-6)
    fit(module, callback, tmp_path, epochs=1)
    assert sizes(callback.penalty) == KEEP
    saved = torch.load(tmp_path / "epoch=0.ckpt", weights_only=True)
    assert not saved["callbacks"][callback.state_key]["frozen"]
    assert (saved["state_dict"]["net.0.weight"].norm(dim=0) > 0).all()
    before, kept = values(module), callback.penalty.kept()
    fit(module, callback, epochs=1)
    assert int(callback.penalty.step) == 10
    assert not torch.equal(values(module), before)
    assert sizes(callback.penalty) == KEEP
    assert all(torch.equal(kept[name], mask) for name, mask in callback.penalty.kept().items())


@quiet_lightning
def test_lightning_tells_how_long_the_training_is():
    from trimreg.nn.lightning import TrimmedPruning

    callback = TrimmedPruning(KEEP, during=(0.2, 0.6))
    fit(lightning_module(), callback, epochs=2)
    assert (callback.penalty.h_schedule, callback.penalty.freeze_at) == (Ramp(2, 6), 6)


@quiet_lightning
def test_a_training_of_lightning_that_breaks_off_is_left_as_it_was():
    from trimreg.nn.lightning import TrimmedPruning

    module, callback = lightning_module(), TrimmedPruning(KEEP, alpha=1e-6)
    take_step = module.training_step

    def breaks(batch, batch_idx):
        if batch_idx == 3:
            raise RuntimeError("the disk is full")
        return take_step(batch, batch_idx)

    module.training_step = breaks
    with pytest.raises(RuntimeError, match="disk"):
        fit(module, callback)
    assert int(callback.penalty.step) == 3
    assert not callback.penalty.frozen
    assert callback.penalty.handle is None


@quiet_lightning
def test_the_states_of_two_callbacks_are_kept_apart():
    from trimreg.nn.lightning import TrimmedPruning

    module = lightning_module()
    keys = {TrimmedPruning({name: 1}).state_key for name in ("net.0", "net.2")}
    assert len(keys) == 2
    assert TrimmedPruning({module.net[0]: 1}).state_key == "TrimmedPruning['Linear']"
    assert TrimmedPruning({"net.0": 1}).state_dict() == {}


# -- transformers ------------------------------------------------------------------------------------------

LAYER = "bert.encoder.layer.0"
HF_KEEP = {f"{LAYER}.intermediate.dense": 5, f"{LAYER}.output.dense": 6}


def tiny_bert():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=8, num_labels=2,
        hidden_dropout_prob=0.1,  # drawn from a state that a resumed run must find again
    )  # fmt: skip
    return BertForSequenceClassification(config)


def test_the_glob_of_the_guide_takes_the_layers_that_it_says():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "networks.md"
    (glob,) = re.findall(r'keep=\{"(bert\.[^"]*)": 1024\}', guide.read_text(encoding="utf-8"))
    callback = Pruning(keep={glob: 6}, during=(0.05, 0.5))
    model = tiny_bert()
    callback.begin(model, [torch.optim.Adam(model.parameters())], 100)
    assert callback.penalty.keep == {f"{LAYER}.output.dense": 6}  # and not attention.output.dense


def sentences():
    draw = torch.Generator().manual_seed(4)
    words = torch.randint(0, 20, (32, 6), generator=draw)
    return [{"input_ids": row, "labels": int(row[0] > 9)} for row in words]


def train(model, callback, folder, resume=None, arguments=(), **options):
    from transformers import Trainer, TrainingArguments

    settings = {"output_dir": str(folder), "max_steps": 12, "per_device_train_batch_size": 8, "save_steps": 6}
    settings |= {"learning_rate": 0.02, "use_cpu": True}
    settings |= {"logging_strategy": "no", "report_to": "none", "disable_tqdm": True, **dict(arguments)}
    settings = TrainingArguments(**settings)
    options |= {"train_dataset": sentences(), "callbacks": [callback]}
    trainer = Trainer(model=model, args=settings, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


quiet_transformers = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::accelerate")


@quiet_transformers
def test_a_resumed_trainer_is_one_without_a_break(tmp_path):
    from trimreg.nn.transformers import TrimmedPruning

    keep = {f"{LAYER}.attention": 1, f"{LAYER}.intermediate": 5}  # a head and hidden units
    options = {"rank_by": "taylor", "h_schedule": Ramp(0, 8), "freeze_at": 8}
    whole, callback = tiny_bert(), TrimmedPruning(keep, **options)
    train(whole, callback, tmp_path / "whole")
    assert sizes(callback.penalty) == keep
    small = export(whole, callback.penalty, sentences()[0]["input_ids"][None], repeats=0)
    assert {layer.name: layer.physical for layer in small.report.layers} == keep
    assert int(callback.penalty.step) == 12

    resumed, again = tiny_bert(), TrimmedPruning(keep, **options)
    train(resumed, again, tmp_path / "resumed", resume=str(tmp_path / "whole" / "checkpoint-6"))
    assert int(again.penalty.step) == 12
    assert torch.equal(values(resumed), values(whole))
    assert_same_state(again.penalty, callback.penalty)


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
@quiet_transformers
def test_the_best_model_is_finalized_by_its_own_state(tmp_path):
    from trimreg.nn.transformers import TrimmedPruning

    falling = iter(range(10, 0, -1))
    best = {"eval_strategy": "steps", "eval_steps": 6}
    best |= {"load_best_model_at_end": True, "metric_for_best_model": "score"}
    model, callback = tiny_bert(), TrimmedPruning(HF_KEEP, alpha=1e-6, during=(0.5, 0.75))
    metrics = {"eval_dataset": sentences()[:4], "compute_metrics": lambda _: {"score": next(falling)}}
    train(model, callback, tmp_path, arguments=best, **metrics)
    assert (callback.penalty.h_schedule, callback.penalty.freeze_at) == (Ramp(6, 9), 9)
    assert int(callback.penalty.step) == 6
    assert sizes(callback.penalty) == HF_KEEP
    dense = tiny_bert().from_pretrained(tmp_path / "checkpoint-6").get_submodule(f"{LAYER}.output.dense")
    largest = dense.weight.norm(dim=0).topk(6).indices.sort().values
    assert torch.equal(callback.penalty.kept()[f"{LAYER}.output.dense"].nonzero().flatten(), largest)


@quiet_transformers
def test_what_a_trainer_cannot_restore_is_refused(tmp_path):
    from transformers import TrainerState

    from trimreg.nn.transformers import TrimmedPruning, saved_state

    restoring = {"restore_callback_states_from_checkpoint": True}
    with pytest.raises(ValueError, match="restore_callback_states_from_checkpoint"):
        train(tiny_bert(), TrimmedPruning(HF_KEEP), tmp_path, arguments=restoring)
    state = TrainerState(stateful_callbacks=[TrimmedPruning(HF_KEEP), TrimmedPruning(HF_KEEP)])
    with pytest.raises(ValueError, match="only one TrimmedPruning"):
        saved_state(state)
    assert saved_state(TrainerState()) is None
    assert saved_state(TrainerState(stateful_callbacks=[TrimmedPruning(HF_KEEP)])) is None
