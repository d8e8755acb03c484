"""How fast gradients are made, against padded rows and against what the processor can multiply.

    python benchmarks/training_speed.py small --threads 1
    python benchmarks/training_speed.py smollm2 --threads 2 --group 8

Every way of computing lives in a process of its own, and they take turns, so that whatever else
the machine does falls on all of them alike. `padded` is a plain reference: rows padded on the
right, transformers' modules, autograd. Fractions are 6 N tokens over the time that it took, N
being all parameters that multiply, in units of the fastest float32 product of matrices that was
seen in the same run; tokens are all tokens of all rows. `honest` counts the output head only at
trained tokens, and attention not at all.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from queue import SimpleQueue

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from forethought.core.trajectory import Tokens
from forethought.learning.batch import Batch, pad
from forethought.learning.gradient import GradientWork, accumulate
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Streams
from forethought.policy.local.decoder import Decoder, rotate
from forethought.policy.local.replica import Port, Replica

WAYS = ("padded", "packed", "bfloat16", "checkpointing")
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


def padded_portions(batch: Batch, tokens: int) -> list[list[int]]:
    """Rows of similar length, of at most so many padded tokens."""
    lengths = batch.lengths_B.tolist()
    portions: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if portions and (len(portions[-1]) + 1) * lengths[row] <= tokens:
            portions[-1].append(row)
        else:
            portions.append([row])
    return portions


def padded_hidden(decoder: Decoder, model: nn.Module, ids_BT: torch.Tensor) -> torch.Tensor:
    """Hidden states [B, T, E] of padded rows, through the library's modules."""
    hidden = model.model.embed_tokens(ids_BT)
    cos, sin = (table[:, None] for table in decoder.rotations(ids_BT.shape[1]))
    for block in decoder.blocks:
        normed = block.attention_norm(hidden)
        query, key, value = (
            module(normed).unflatten(-1, (-1, decoder.head_size))
            for module in (block.query, block.key, block.value)
        )
        if block.query_norm is not None:
            query, key = block.query_norm(query), block.key_norm(key)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        mixed = F.scaled_dot_product_attention(
            *(each.transpose(1, 2) for each in (query, key, value)),
            is_causal=True,
            enable_gqa=decoder.heads != decoder.key_heads,
        )
        hidden = hidden + block.output(mixed.transpose(1, 2).flatten(2))
        normed = block.feed_norm(hidden)
        hidden = hidden + block.down(F.silu(block.gate(normed)) * block.up(normed))
    return decoder.norm(hidden)


def padded_gradient(model: nn.Module, batch: Batch, options: argparse.Namespace) -> None:
    """The reference."""
    decoder, loss = Decoder(model), objective(LossSettings())
    model.zero_grad()
    for portion in padded_portions(batch, options.micro_tokens):
        part = batch.take(portion)
        trained = part.mask_BT[:, 1:]
        hidden = padded_hidden(decoder, model, part.ids_BT[:, :-1])[trained]
        targets = part.ids_BT[:, 1:][trained]

        def chosen(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return decoder.head(hidden).log_softmax(-1).gather(1, targets[:, None])[:, 0]

        size = options.logit_tokens
        pieces = zip(hidden.split(size), targets.split(size), strict=True)
        logprobs = torch.cat(
            [
                checkpoint(chosen, *piece, use_reentrant=False)
                if len(hidden) > size
                else chosen(*piece)
                for piece in pieces
            ]
        )
        scattered = torch.zeros_like(trained, dtype=torch.float32).masked_scatter(trained, logprobs)
        streams = Streams(
            mask_BT=part.mask_BT,
            advantages_BT=part.advantages_BT,
            old_logprobs_BT=part.sampled_logprobs_BT,
            weights_BT=torch.ones_like(part.advantages_BT),
        )
        loss(F.pad(scattered, (1, 0)), streams, batch.denominators(None)).loss.backward()


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
    one, other = torch.randn(2048, 2048), torch.randn(2048, 2048)
    for _ in sys.stdin:
        multiplied = 2 * 2048**3 / fastest(3, lambda: one @ other)
        seconds = fastest(1, lambda: gradient(model, batch, options))
        norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters()])
        told = {
            "peak": multiplied,
            "seconds": seconds,
            "norm": float(norm),
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
        print(json.dumps(told), flush=True)


def ask(child: "subprocess.Popen[str]") -> dict[str, float]:
    """One gradient of a child."""
    child.stdin.write("\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


def main() -> None:
    """Measure every way and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=SIZES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--group", type=int, default=1, help="rows that share a prompt")
    parser.add_argument("--rows", type=int, default=0, help="0: as many as usual")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--micro-tokens", type=int, default=2048)
    parser.add_argument("--logit-tokens", type=int, default=1024)
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        serve(options)
        return
    children = {
        way: subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--child", way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for way in options.ways
    }
    told: dict[str, list[dict[str, float]]] = {way: [] for way in options.ways}
    for child in children.values():
        ask(child)  # warms up
    for _ in range(options.turns):
        for way, child in children.items():
            told[way].append(ask(child))
    for child in children.values():
        child.communicate()
    report(options, told)


def report(options: argparse.Namespace, told: dict[str, list[dict[str, float]]]) -> None:
    """One line for each way."""
    model = network(options.model)
    batch = rows(options.model, model.config.vocab_size, options.group, options.rows)
    tokens, trained = int(batch.lengths_B.sum()), int(batch.mask_BT.sum())
    head = model.lm_head.weight.numel()
    inside = sum(each.numel() for each in model.model.layers.parameters() if each.ndim == 2)
    peak = max(one["peak"] for each in told.values() for one in each)
    first = [one["seconds"] for one in next(iter(told.values()))]
    print(
        f"{options.model}: {len(batch.ids_BT)} rows, {tokens} tokens, {trained} trained, "
        f"{(inside + head) / 1e6:.2f}M parameters that multiply, {options.threads} threads, "
        f"{peak / 1e9:.0f} GFLOP/s at most"
    )
    print(f"{'way':14}{'tokens/s':>10}{'fraction':>10}{'honest':>10}{'times':>8}{'GiB':>7}  norm")
    for way, each in told.items():
        seconds = statistics.median(one["seconds"] for one in each)
        ratio = statistics.median(
            before / one["seconds"] for before, one in zip(first, each, strict=True)
        )
        whole = 6 * (inside + head) * tokens / seconds / peak
        honest = 6 * (inside * tokens + head * trained) / seconds / peak
        memory = each[-1]["memory"]
        print(
            f"{way:14}{tokens / seconds:10.0f}{whole:10.1%}{honest:10.1%}{ratio:8.2f}{memory:7.2f}"
            f"  {each[-1]['norm']:.6g}"
        )


if __name__ == "__main__":
    main()
