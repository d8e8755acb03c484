"""A run's trained model as a folder that stands by itself, for other programs."""

import json
from pathlib import Path

from forethought.app.context import Context
from forethought.app.places import new_place
from forethought.app.recipe import checked
from forethought.app.show import Show
from forethought.app.trained import trained_stages
from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from forethought.learning.checkpoint import Checkpoints
from forethought.learning.seal import Contents
from forethought.policy.chat_template import chat_template
from forethought.policy.local.models import LocalModel, merged
from forethought.watch.exams import SatExam, interval, percent, read_exams

CARD = "README.md"
_EXAMS = """## Exams

Sampled attempts that are right, with a 95 % interval over problems.

| exam | problems | attempts at each | right | interval | settings |
|---|---|---|---|---|---|
"""


def export(run: Run, folder: Path, show: Show) -> None:
    """Write the model of the last training stage that finished, and how it was made, to `folder`.

    Adapters are put into the weights. Raises `RecipeError` where none has finished, where its
    checkpoint is damaged, where `folder` is there already, lies in the run or below a file, and
    when the disk refuses.
    """
    trained = trained_stages(run)
    if not trained:
        raise RecipeError(f"{run.path}: no training stage has finished yet; run sft or rl first")
    place = new_place(run, folder, "folder")
    last = trained[-1].name
    context = Context(checked(run.recipe, str(run.path)), run, show)
    source = context.trained(last)
    model = merged(context.load(last))

    def write(beside: Path) -> Contents:
        (beside / CARD).write_text(card(run, source, model), encoding="utf-8")
        return model.save(beside)

    exported = Checkpoints(folder=place.parent, elsewhere="another folder to export to")
    exported.save(place.name, write, {"made_from": str(source)})
    show.say(f"the model that {last} ended with is in {folder}, as transformers reads it;")
    show.say(f"{folder / CARD} says how it was made, and how it is spoken with")


def card(run: Run, source: Path, model: LocalModel) -> str:
    """How the checkpoint in `source` was made, for people: its exams and its recipe."""
    exams = "".join(map(_row, read_exams(run)))
    return (
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n\n"
        f"# {run.path.resolve().name}\n\n"
        f"Made by Forethought: the weights of `{source}`, with all adapters put into them. "
        f"{_spoken_with(model)}\n\n"
        f"{_EXAMS + exams if exams else 'It has sat no exam.'}\n\n"
        f"## Recipe\n\n```json\n{json.dumps(run.recipe, indent=1)}\n```\n"
    )


def _spoken_with(model: LocalModel) -> str:
    """How conversations are to be written for the model, for who calls it from elsewhere."""
    name, strips = model.format.name, model.thinking == "strip"
    text = (
        f"Conversations are written in the format `{name}`: ChatML, "
        f"{'without tools' if name == 'plain' else 'with tools and calls in the tags of Hermes'}. "
        f'`sampling.thinking = "{model.thinking}"`: it '
        f"{'does not see its earlier thinking' if strips else 'sees its earlier thinking'} again. "
    )
    if chat_template(name, model.thinking) is not None:
        return text + (
            "With transformers, the chat template in `tokenizer_config.json` writes them so; what "
            "a text spells like a control token becomes one there, which it did not in training."
        )
    return text + (
        "No chat template is in this folder; one that is published for this format may add a "
        "system prompt of its own, which training did not."
    )


def _row(exam: SatExam) -> str:
    result = exam.result
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    figures = (
        exam.title,
        len(result.problems),
        result.attempts,
        percent(result.average.value),
        interval(result.average),
        settings,
    )
    return f"| {' | '.join(map(str, figures))} |\n"
