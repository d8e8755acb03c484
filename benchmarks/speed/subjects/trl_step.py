"""TRL's whole step: GRPOTrainer with the same tool, prompts, groups and limits.

Runs in TRL's environment. Generation, tools, rewards, gradient and update are TRL's own; the tool
is Forethought's sandbox. Gradient checkpointing is off, which is faster; the batch on the device is
TRL's default of 8 attempts, gradients accumulated over the step.
"""

import asyncio
import json
import re
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import trl
from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.speed.subjects.lengths import lengths
from benchmarks.speed.subjects.templates import jinja_template
from datasets import Dataset
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import add_response_schema, qwen3_chat_template

from forethought.core.messages import ToolCall, User
from forethought.policy.formats import chat_format
from forethought.tools.python_tool import PYTHON, PythonTool
from forethought.tools.settings import PythonSettings

ON_DEVICE = 8
"""Attempts in one forward and backward pass: TRL's default."""
BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


class Sandbox:
    """The Python tool, in a thread with an event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._tool = PythonTool(PythonSettings(shown_characters=200))
        self._wait(self._tool.__aenter__())

    def run(self, code: str) -> str:
        """What a program printed."""
        call = ToolCall(id="call_0", name=PYTHON.name, arguments=json.dumps({"code": code}))
        return self._wait(self._tool.call(call)).text

    def close(self) -> None:
        """End the servers."""
        self._wait(self._tool.__aexit__(None, None, None))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@dataclass(slots=True, kw_only=True)
class Noted:
    """What happened in each step; `generated` counts tokens that are cut off later, too."""

    ends: list[float] = field(default_factory=list[float])
    generated: list[int] = field(default_factory=list[int])
    attempt_seconds: list[float] = field(default_factory=list[float])
    kept: list[list[int]] = field(default_factory=list[list[int]])
    calls: list[list[int]] = field(default_factory=list[list[int]])
    prompts: list[list[int]] = field(default_factory=list[list[int]])


class Trainer(GRPOTrainer):
    """GRPOTrainer that notes what it does; it does nothing otherwise."""

    noted: Noted

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._generate_single_turn(*args, **kwargs)
        self.noted.generated[-1] += sum(map(len, found[0]))
        return found

    def _generate(self, prompts: Any) -> Any:
        self.noted.generated.append(0)
        found = super()._generate(prompts)
        self.noted.prompts.append(list(found[0][0]))
        self.noted.kept.append([sum(mask) for mask in found[2]])
        said = [[message["role"] for message in messages] for messages in found[3]]
        self.noted.calls.append([roles.count("tool") for roles in said])
        return found

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        began = time.perf_counter()
        found = super()._generate_and_score_completions(inputs)
        self.noted.attempt_seconds.append(time.perf_counter() - began)
        return found


class Clock(TrainerCallback):
    """Takes the time at the end of every step."""

    def __init__(self, noted: Noted) -> None:
        self._noted = noted

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """An optimiser step has been taken."""
        self._noted.ends.append(time.perf_counter())


def tokenizer_of(task: Task) -> PreTrainedTokenizerFast:
    """The model's tokenizer with our chat format, and TRL's own reading of Hermes calls."""
    file = str(Path(task["model"]) / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=file, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.chat_template = qwen3_chat_template
    add_response_schema(tokenizer)
    tokenizer.chat_template = jinja_template(task["format"], Tokenizer.from_file(file))
    return tokenizer


def settings_of(task: Task) -> GRPOConfig:
    """The same sampling, groups and limits; one update a step; nothing saved or reported."""
    attempts = task["prompts"] * task["group"]
    return GRPOConfig(
        output_dir=f"{task['folder']}/trl",
        per_device_train_batch_size=min(ON_DEVICE, attempts),
        gradient_accumulation_steps=max(1, attempts // ON_DEVICE),
        num_generations=task["group"],
        max_completion_length=task["tokens"],
        max_tool_calling_iterations=task["turns"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=1e-6,
        max_steps=task["warm"] + task["steps"],
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        seed=task["seed"],
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
    )


def reward(completions: list[list[dict[str, Any]]], answer: list[str], **rest: Any) -> list[float]:
    """1 for the right boxed answer, otherwise less; a call earns a little."""
    earned: list[float] = []
    for messages, right in zip(completions, answer, strict=True):
        found = BOXED.findall(str(messages[-1].get("content", "")))
        called = any(message["role"] == "tool" for message in messages)
        earned.append((1.0 if found and found[-1].strip() == right else -1.0) + 0.1 * called)
    return earned


def train(task: Task, sandbox: Sandbox) -> Noted:
    """Take the task's steps: those to get warm, and those that are timed."""

    def python(code: str) -> str:
        """Run a Python program and read what it prints.

        Args:
            code: The program.

        Returns:
            What it printed.
        """
        return sandbox.run(code)

    noted = Noted()
    rows = [
        {"prompt": [{"role": "user", "content": each["prompt"]}], "answer": each["answer"]}
        for each in task["problems"]
    ]
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.float32),
        reward_funcs=reward,
        args=settings_of(task),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer_of(task),
        tools=[python],
        callbacks=[Clock(noted)],
    )
    trainer.noted = noted
    trainer.train()
    return noted


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Seconds a step over the timed steps, and what was sampled in them."""
    sandbox = Sandbox()
    noted = train(task, sandbox)
    sandbox.close()
    warm, steps = task["warm"], task["steps"]
    seconds = (noted.ends[-1] - noted.ends[warm - 1]) / steps
    attempts = sum(noted.attempt_seconds[warm:]) / steps
    kept = [count for step in noted.kept[warm:] for count in step]
    calls = [count for step in noted.calls[warm:] for count in step]
    figures = {
        "seconds": seconds,
        "tokens": sum(noted.generated[warm:]) / steps,
        "kept_tokens": sum(kept) / steps,
        "attempt_seconds": attempts,
        "learn_seconds": seconds - attempts,
        "updates": 1.0,
        **lengths(kept, task["tokens"], calls),
    }
    facts = {
        "trl": trl.__version__,
        "torch": torch.__version__,
        "same prompt": str(noted.prompts[0] == our_prompt(task)).lower(),
        "all_tokens": kept,
    }
    return {task["case"]: figures}, facts


def our_prompt(task: Task) -> list[int]:
    """The first prompt as Forethought writes it."""
    chat = chat_format(
        task["format"], Tokenizer.from_file(str(Path(task["model"]) / "tokenizer.json"))
    )
    return chat.opening([User(text=task["problems"][0]["prompt"])], [PYTHON])


if __name__ == "__main__":
    answer(measure)
