"""`generate` of transformers: one padded batch with a key-value cache."""

import time

import torch
import transformers
from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.speed.subjects.lengths import lengths
from transformers import AutoModelForCausalLM, PreTrainedModel


def continued(
    model: PreTrainedModel, prompts: list[list[int]], stop: list[int], new: int
) -> list[int]:
    """How many tokens each prompt was continued with."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(each)) + each for each in prompts])
    mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in prompts])
    made = model.generate(
        input_ids=ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        max_new_tokens=new,
        eos_token_id=stop or None,
        pad_token_id=0,
    )
    return [_length(row, stop) for row in made[:, longest:].tolist()]


def _length(row: list[int], stop: list[int]) -> int:
    """The tokens of a row up to the one that ended it."""
    ends = [place for place, token in enumerate(row) if token in stop]
    return ends[0] + 1 if ends else len(row)


@torch.inference_mode()
def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Tokens per second in every case of the task."""
    transformers.set_seed(0)
    model = AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    continued(model, task["warm_prompts"], [], 8)
    cases: dict[str, dict[str, float]] = {}
    for case in task["cases"]:
        began = time.perf_counter()
        counts = continued(model, case["prompts"], case["stop"], case["new"])
        seconds = time.perf_counter() - began
        cases[case["name"]] = {
            "seconds": seconds,
            "tokens": float(sum(counts)),
            **lengths(counts, case["new"]),
        }
    return cases, {"transformers": transformers.__version__, "torch": torch.__version__}


if __name__ == "__main__":
    answer(measure)
