"""What the penalty costs a training step of a network, on the CPU and, where there is one, on a GPU.

    python -m benchmarks.networks [--quick] [--device cpu|cuda] [--json FILE]

needs PyTorch and nothing else beside the package.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np

from .section import Section

KEPT = Path(__file__).parent / "measured" / "networks_cuda.json"  # shown where there is no GPU
WIDE, FAST = "MLP 4096 x 4", "MLP 4096 x 4, TF32 and fused Adam"
BATCH = {("LeNet-300-100", "cpu"): 100, ("LeNet-300-100", "cuda"): 100, ("ResNet-18", "cpu"): 16, ("ResNet-18", "cuda"): 128, (WIDE, "cuda"): 256, (FAST, "cuda"): 256}  # fmt: skip
# Steps of a repeat, and repeats.
COUNTS = {("LeNet-300-100", "cpu"): (20, 41), ("LeNet-300-100", "cuda"): (30, 15), ("ResNet-18", "cpu"): (1, 15), ("ResNet-18", "cuda"): (5, 9), (WIDE, "cuda"): (10, 11), (FAST, "cuda"): (10, 11)}  # fmt: skip
PENALTIES = {
    "hard": {},
    "hard, ranked at every step": {"rank_every": 1},
    "soft": {"alpha": 1e-2},
    "bcd": {"alpha": 1e-4, "mode": "bcd"},
    "taylor": {"rank_by": "taylor"},
}
WAYS = {"cpu": ("default",), "cuda": ("default", "kernel by kernel", "all in a graph")}
KINDS = {
    "hard": "the default: groups beyond h are zero after every step, and ranked at every fourth",
    "hard, ranked at every step": "rank_every=1",
    "soft": "alpha=0.01, the exact proximal step",
    "bcd": 'mode="bcd", the paper\'s Algorithm 1',
    "taylor": 'rank_by="taylor", hard',
    "Bayesian": "all layers made Bayesian, with their divergence in the loss, and no penalty; against plain layers",
}
MOST_MEMORY = 0.01
MIDDLE = 420  # a step in the middle of the fall of h, from step 40 to step 800


def bar_of(network: str, device: str, kind: str) -> float | None:
    """The ratio that a step may take; None for the rows that are there to be seen."""
    if network == FAST:
        return None
    if kind == "Bayesian":
        return 2.5
    if device == "cpu":
        return 1.3
    return 1.1 if kind == "taylor" else 1.05 if kind == "hard" and network == WIDE else 1.15


# -- the networks --------------------------------------------------------------------------------------------


def lenet():
    """784-300-100-10."""
    from torch import nn

    return nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10))


def resnet18():
    """ResNet-18 for 32 x 32 images: a 3 x 3 convolution first, no pooling, four stages of two blocks (He et al. 2016)."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(out)
            self.relu = nn.ReLU(inplace=True)
            self.shortcut = nn.Identity()
            if stride != 1 or channels != out:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
                )

        def forward(self, x):
            y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
            return self.relu(y + self.shortcut(x))

    layers, channels = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)], 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, out, stride), Block(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def wide():
    """Four linear layers of 4096 units."""
    from torch import nn

    return nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(4096, 4096), nn.ReLU())][:-1])


NETWORKS = {
    "LeNet-300-100": (lenet, (784,)),
    "ResNet-18": (resnet18, (3, 32, 32)),
    WIDE: (wide, (4096,)),
    FAST: (wide, (4096,)),
}


def optimizer_of(name, model, capturable):
    """Adam for perceptrons, as the paper trains LeNet; momentum for the residual network, as is usual."""
    import torch

    if name == "ResNet-18":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    fused = True if name == FAST else None
    return torch.optim.Adam(model.parameters(), lr=1e-3, capturable=capturable, fused=fused)


def halves(model) -> dict:
    """Half of the input units of every linear layer and of the output channels of every convolution."""
    from torch import nn

    sizes = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            sizes[name] = module.in_features // 2
        elif isinstance(module, nn.Conv2d):
            sizes[name] = module.out_channels // 2
    return sizes


# -- the clock -----------------------------------------------------------------------------------------------


def training_step(name, device, batch, penalty, way):
    """``(step, check)``: one step of training, with the named penalty or none; check looks at the sizes."""
    import torch
    from torch.nn import functional

    from trimreg.nn import TrimmedGroupL1, bayesianize, kl_loss

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = name == FAST
    make, shape = NETWORKS[name]
    with torch.device(device):
        model = make()
    bayesian = penalty == "Bayesian"
    if bayesian:
        bayesianize(model)
    x, y = torch.randn(batch, *shape, device=device), torch.randint(10, (batch,), device=device)
    captured = way == "all in a graph"
    optimizer = optimizer_of(name, model, captured)
    attached = None
    if penalty in PENALTIES:
        attached = TrimmedGroupL1(model, halves(model), **PENALTIES[penalty], cuda_graph=way == "default")
        attached.step.fill_(MIDDLE)
        attached.attach(optimizer)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(x), y)
        (loss + kl_loss(model, 60_000) if bayesian else loss).backward()
        optimizer.step()

    def check():
        if attached is None:
            return
        attached.freeze_()
        for layer, groups in attached.layers.items():
            alive = int((groups.norms() > 0).sum())
            if alive != attached.keep[layer]:
                raise AssertionError(
                    f"{name}, {penalty}, layer {layer}: {alive} groups in place of {attached.keep[layer]}"
                )

    return (in_graph(step) if captured else step), check


def in_graph(step):
    """The step as one CUDA graph: no work of the host is left in it but its launch.

    A graph does not hold the tensors it was captured with, so what is returned holds the step, and that the model.
    """
    from trimreg_reproduction.networks.device import captured

    def warm_up():
        for _ in range(5):
            step()

    graph = captured(warm_up, step)
    return lambda held=step: graph.replay()


def seconds_in_turn(steps: dict, device: str, count: int, repeats: int) -> dict:
    """Seconds a step of each, by repeat; they take turns, so that other load falls on all alike."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    clock = time.perf_counter if device == "cuda" else time.process_time  # of one thread

    def seconds(step):
        wait()
        start = clock()
        for _ in range(count):
            step()
        wait()
        return (clock() - start) / count

    for step in steps.values():
        for _ in range(3):
            step()
    found = {kind: [] for kind in steps}
    order = list(steps)
    for turn in range(repeats):
        for place in range(len(order)):  # each is first, second, ... equally often
            kind = order[(turn + place) % len(order)]
            found[kind].append(seconds(steps[kind]))
    return {kind: np.array(times) for kind, times in found.items()}


def measured(quick: bool, devices, names=tuple(NETWORKS)) -> list[dict]:
    """A record for each network, device, way of running and kind of step."""
    records = []
    for device in devices:
        for name in names:
            if (name, device) not in BATCH:
                continue
            count, repeats = (1, 3) if quick else COUNTS[name, device]
            batch = min(BATCH[name, device], 4) if quick else BATCH[name, device]
            for way in WAYS[device]:
                kinds = [
                    *PENALTIES,
                    *(["Bayesian"] if way != "kernel by kernel" and name != "ResNet-18" else []),
                ]
                pairs = {kind: training_step(name, device, batch, kind, way) for kind in (None, *kinds)}
                steps = {kind: step for kind, (step, _) in pairs.items()}
                times = seconds_in_turn(steps, device, count, repeats)
                for _, check in pairs.values():
                    check()
                for kind in kinds:
                    ratio = times[kind] / times[None]
                    records.append({
                        "network": name, "device": device, "batch": batch, "way": way, "penalty": kind,
                        "plain_ms": 1e3 * float(np.median(times[None])), "ms": 1e3 * float(np.median(times[kind])),
                        "ratio": float(np.median(ratio)), "quartiles": np.quantile(ratio, [0.25, 0.75]).tolist(),
                        "steps": count, "repeats": repeats, "bar": bar_of(name, device, kind),
                    })  # fmt: skip
    return records


def memory() -> list[dict]:
    """The most memory that a step with each penalty takes beyond a plain one, by the bytes of the weights.

    This is for the perceptron: with convolutions the workspaces of cuDNN differ by more than that between runs.
    """
    import torch

    def most(name, kind):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        step, _ = training_step(name, "cuda", BATCH[name, "cuda"], kind, "default")
        for _ in range(4):
            step()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    with torch.device("meta"):
        weights = sum(p.numel() * p.element_size() for p in wide().parameters())
    plain = most(WIDE, None)
    return [
        {"network": WIDE, "penalty": kind, "memory": (most(WIDE, kind) - plain) / weights}
        for kind in PENALTIES
    ]


# -- the report ----------------------------------------------------------------------------------------------


def devices_there(wanted: str | None = None) -> list[str]:
    import torch

    there = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    if wanted is not None and wanted not in there:
        raise SystemExit(f"there is no {wanted} here")
    return there if wanted is None else [wanted]


def one_thread() -> None:
    """As in the other benchmarks, but of PyTorch alone: threadpoolctl may be missing where this runs."""
    import torch

    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True


def where() -> str:
    """Versions and processors."""
    import torch

    gpu = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return f"{gpu}torch {torch.__version__}, Python {platform.python_version()}"


def kept_from_a_gpu() -> tuple[list[dict], list[dict]]:
    """Records of :data:`KEPT`, each with the machine it was taken on, and of memory; none where there is no file."""
    if not KEPT.exists():
        return [], []
    kept = json.loads(KEPT.read_text())
    records = [record | {"where": kept["where"]} for record in kept["records"]]
    return records, [record for record in kept["memory"] if record["network"] == WIDE]


def verdict(ratio: float, bar: float | None) -> tuple[str, str]:
    """The last two cells of a row: the bar, and whether it is met."""
    return ("", "") if bar is None else (f"{bar}", "yes" if ratio <= bar else "**no**")


def section_of(records: list[dict], memories: list[dict]) -> Section:
    section = Section(
        "Networks: what the penalty costs a training step",
        f"Forward, backward and optimizer's step, with the penalty on every layer (half of the groups kept) against without; {where()}, one thread and processor time on the CPU. Median over repeats, "
        "taken in turn, of the ratio within a repeat; in brackets its quartiles. LeNet-300-100 with Adam; ResNet-18 for 32 x 32 images, 20 convolutions and the last layer penalized, with "
        "momentum; the MLP has four linear layers of 4096 inputs and outputs, with Adam, in float32 (and, without a bar, with products in TF32 and Adam in one kernel). h is in the middle of its fall. On CUDA the penalty's own step runs as a graph by default; *kernel by kernel*: `cuda_graph=False`; *all in a graph*: the whole training step does. " + "; ".join(f"*{kind}*: {text}" for kind, text in KINDS.items()) + ".",
        ["network", "device", "batch", "penalty", "plain step, ms", "with the penalty, ms", "ratio", "at most", "met"],
    )  # fmt: skip
    for record in records:
        if record["network"] == FAST and record["way"] != "default":
            continue  # to be seen beside the other rows, and in the file of measurements
        device = record["device"] + ("" if record["way"] == "default" else f", {record['way']}")
        low, high = record["quartiles"]
        section.rows.append([
            record["network"], device, record["batch"], record["penalty"], f"{record['plain_ms']:.3f}", f"{record['ms']:.3f}",
            f"{record['ratio']:.3f} ({low:.3f}-{high:.3f})", *verdict(record["ratio"], record["bar"]),
        ])  # fmt: skip
    for record in memories:
        asked = f"{record['network']}, {record['penalty']}: memory beside a plain step at most {MOST_MEMORY:.0%} of the weights"
        section.bar(asked, f"{record['memory']:.2%}", record["memory"] <= MOST_MEMORY)
    for device in dict.fromkeys(record["device"] for record in records):
        default = [
            r for r in records if r["device"] == device and r["penalty"] == "hard" and r["way"] == "default"
        ]
        section.headline.append([
            f"a training step with the penalty on every layer against the plain step, {'GPU' if device == 'cuda' else 'CPU'}",
            ", ".join(f"{r['ratio']:.3f} times ({r['network']})" for r in default),
        ])  # fmt: skip
    for place in dict.fromkeys(record["where"] for record in records if "where" in record):
        section.remarks.append(
            f"Rows of device cuda are from {place}, by `python -m benchmarks.networks --device cuda --json "
            f"benchmarks/{KEPT.parent.name}/{KEPT.name}`."
        )
    return section


def run(quick: bool = False, device: str | None = None, json_file: str | None = None, names=None) -> Section:
    one_thread()
    there = devices_there(device)
    names = names or tuple(NETWORKS)
    records = measured(quick, there, names)
    memories = memory() if "cuda" in there and WIDE in names else []
    if json_file is not None:
        found = {"where": where(), "quick": quick, "records": records, "memory": memories}
        Path(json_file).write_text(json.dumps(found, indent=1) + "\n")
    if device is None and "cuda" not in there:
        kept, memories = kept_from_a_gpu()
        records += kept
    return section_of(records, memories)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.networks", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--quick", action="store_true", help="few steps of small batches, to see that it runs"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: all that are there")
    parser.add_argument("--network", action="append", choices=list(NETWORKS), help="default: all")
    parser.add_argument("--json", metavar="FILE", help="write every figure there as well")
    arguments = parser.parse_args()
    print(run(arguments.quick, arguments.device, arguments.json, arguments.network).markdown())


if __name__ == "__main__":
    main()
