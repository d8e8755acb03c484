"""How fast gradients are made, against padded rows and against what the processor can multiply.

    python -m benchmarks.training_speed small --threads 1
    python -m benchmarks.training_speed smollm2 --threads 2 --group 8

Every way of computing lives in a process of its own, and they take turns, in the other order in
every second turn, so that whatever else the machine does falls on all of them alike. `padded` is a
plain reference: rows padded on the right, transformers' modules, autograd. Fractions are 6 N tokens
over the time that it took, N being all parameters that multiply, in units of the fastest float32
product of matrices that was seen in the same run; tokens are all tokens of all rows. `honest`
counts the output head only at trained tokens, and attention not at all.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue

import torch
from benchmarks.speed.children import ROOT, environment
from benchmarks.speed.figures import in_turns
from benchmarks.training_padded import padded_gradient
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from forethought.core.trajectory import Tokens
from forethought.learning.batch import Batch, pad
from forethought.learning.gradient import GradientWork, accumulate
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.settings import ComputeSettings
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.replica import Port, Replica

WAYS = ("padded", "packed", "bfloat16", "checkpointing")
COMPUTE = ComputeSettings()
"""Portions as they are by default."""
Told = dict[str, float]
Child = subprocess.Popen[str]
SIZES = {"small": (128, 50, 300), "smollm2": (32, 100, 400)}
"""Rows, and their shortest and longest length."""


def network(name: str) -> nn.Module:
    """Random weights of a model's shape."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    if name == "small":
        kind, config = Qwen3ForCausalLM, Qwen3Config
        sizes = {"vocab_size": 640, "hidden_size": 128, "intermediate_size": 352, "head_dim": 32}
        counts = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4}
    else:
        kind, config = LlamaForCausalLM, LlamaConfig
        sizes = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536}
        counts = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3}
    return kind(config(**sizes, **counts, tie_word_embeddings=True, max_position_embeddings=2048))


def rows(name: str, vocabulary: int, group: int, count: int = 0) -> Batch:
    """Made-up rows: a prompt that `group` rows share, then what the policy said."""
    usual, shortest, longest = SIZES[name]
    count = count or usual
    draw = random.Random(0)
    made: list[Tokens] = []
    for number in range(count):
        if number % group == 0:
            prompt = [
                draw.randrange(vocabulary) for _ in range(draw.randint(shortest // 2, longest // 3))
            ]
        said = draw.randint(max(shortest - len(prompt), 8), longest - len(prompt))
        ids = [*prompt, *(draw.randrange(vocabulary) for _ in range(said))]
        sampled = (False,) * len(prompt) + (True,) * said
        logprob = -torch.tensor(float(vocabulary)).log().item()
        logprobs = tuple(logprob if each else 0.0 for each in sampled)
        made.append(Tokens(ids=tuple(ids), sampled=sampled, logprobs=logprobs))
    return pad(made, [draw.choice((-1.0, 1.0)) for _ in made])


def packed_gradient(model: nn.Module, batch: Batch, options: argparse.Namespace) -> None:
    """What a learner does."""
    replica = Replica(model=model, decoder=Decoder(model))
    work = GradientWork(
        batch=batch,
        denominators=batch.denominators(None),
        objective=objective(LossSettings()),
        temperature=1.0,
        micro_tokens=options.micro_tokens,
        logit_tokens=options.logit_tokens,
        dtype=torch.bfloat16 if options.child == "bfloat16" else None,
        checkpointing=options.child == "checkpointing",
    )
    accumulate(replica, work, Port(emit=lambda value: None, inbox=SimpleQueue()))


def fastest(turns: int, work: Callable[[], object]) -> float:
    """The least seconds that a piece of work took."""
    times = []
    for _ in range(turns):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def serve(options: argparse.Namespace) -> None:
    """A child: for every line that it hears, one gradient."""
    torch.set_num_threads(options.threads)
    model = network(options.model)
    batch = rows(options.model, model.config.vocab_size, options.group, options.rows)
    gradient = padded_gradient if options.child == "padded" else packed_gradient
    layers = model.model.layers.parameters()
    work = {
        "rows": len(batch.ids_BT),
        "tokens": int(batch.lengths_B.sum()),
        "trained": int(batch.mask_BT.sum()),
        "inside": sum(each.numel() for each in layers if each.ndim == 2),
        "head": model.lm_head.weight.numel(),
    }
    one, other = torch.randn(2048, 2048), torch.randn(2048, 2048)
    for _ in sys.stdin:
        multiplied = 2 * 2048**3 / fastest(3, lambda: one @ other)
        seconds = fastest(1, lambda: gradient(model, batch, options))
        norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters()])
        told = {
            **work,
            "peak": multiplied,
            "seconds": seconds,
            "norm": float(norm),
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps(told), flush=True)


def ask(child: Child) -> Told:
    """One gradient of a child."""
    child.stdin.write("\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


def take_turns(options: argparse.Namespace, words: list[str]) -> dict[str, list[Told]]:
    """What every way told of each of its gradients; `words` are the options as they were given."""
    children = {
        way: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.training_speed", *words, "--child", way],
            cwd=ROOT,
            env=environment(options.threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for way in options.ways
    }
    try:
        for child in children.values():
            ask(child)  # warms up
        return answers(children, options.turns)
    finally:
        for child in children.values():
            child.communicate()


def answers(children: Mapping[str, Child], turns: int) -> dict[str, list[Told]]:
    """What each child told in so many turns, each turn in the other order than the one before."""
    told: dict[str, list[Told]] = {way: [] for way in children}
    for _, way in in_turns([*children], turns):
        told[way].append(ask(children[way]))
    return told


def figures(told: dict[str, list[Told]]) -> dict[str, Told]:
    """What every way came to: medians, and operations in units of 10^9 a second.

    `times` is how many times faster it is than the first way, turn by turn.
    """
    peak = max(one["peak"] for each in told.values() for one in each)
    first = [one["seconds"] for one in next(iter(told.values()))]
    found: dict[str, Told] = {}
    for way, each in told.items():
        seconds = statistics.median(one["seconds"] for one in each)
        pairs = zip(first, each, strict=True)
        last = each[-1]
        inside, head = last["inside"], last["head"]
        found[way] = last | {
            "seconds": seconds,
            "times": statistics.median(before / one["seconds"] for before, one in pairs),
            "gflops": 6 * (inside + head) * last["tokens"] / seconds / 1e9,
            "honest_gflops": 6 * (inside * last["tokens"] + head * last["trained"]) / seconds / 1e9,
            "product_gflops": peak / 1e9,
        }
    return found


def measured(words: list[str]) -> dict[str, Told]:
    """What every way came to with these options."""
    return figures(take_turns(options_of(words), words))


def options_of(words: list[str]) -> argparse.Namespace:
    """The options in `words`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=SIZES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--group", type=int, default=1, help="rows that share a prompt")
    parser.add_argument("--rows", type=int, default=0, help="0: as many as usual")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--micro-tokens", type=int, default=COMPUTE.micro_tokens)
    parser.add_argument("--logit-tokens", type=int, default=COMPUTE.logit_tokens)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def report(options: argparse.Namespace, found: dict[str, Told]) -> None:
    """Print one line for each way."""
    work = next(iter(found.values()))
    multiply = (work["inside"] + work["head"]) / 1e6
    peak = work["product_gflops"]
    print(
        f"{options.model}: {work['rows']} rows, {work['tokens']} tokens, "
        f"{work['trained']} trained, {multiply:.2f}M parameters that multiply, "
        f"{options.threads} threads, {peak:.0f} GFLOP/s at most"
    )
    print(f"{'way':14}{'tokens/s':>10}{'fraction':>10}{'honest':>10}{'times':>8}{'GiB':>7}  norm")
    for way, each in found.items():
        shares = f"{each['gflops'] / peak:10.1%}{each['honest_gflops'] / peak:10.1%}"
        memory = each["memory"] / 2**30
        print(
            f"{way:14}{each['tokens'] / each['seconds']:10.0f}{shares}{each['times']:8.2f}"
            f"{memory:7.2f}  {each['norm']:.6g}"
        )


def main(words: list[str] | None = None) -> None:
    """Measure every way and print one line for each."""
    words = sys.argv[1:] if words is None else words
    options = options_of(words)
    if options.child:
        serve(options)
    else:
        report(options, measured(words))


if __name__ == "__main__":
    main()
