"""Our chat formats as Jinja templates, so that other tools show a model the very same prompts."""

import json

from tokenizers import Tokenizer

from forethought.policy.formats import chat_format
from forethought.tools.python_tool import PYTHON

GAPS = {"hermes": "\n", "compact": ""}
"""What stands inside tags, by format."""
HEADER = "<|im_start|>assistant\n"
TURNS = """{{- HEAD }}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- HEADER + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- GAP if message.content or not loop.first else '' }}
{{- '<tool_call>' + GAP }}
{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}' + GAP + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n' if loop.first or loop.previtem.role != 'tool' else GAP }}
{{- '<tool_response>' + GAP + message.content + GAP + '</tool_response>' }}
{{- '<|im_end|>\\n' if loop.last or loop.nextitem.role != 'tool' else '' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- HEADER }}{%- endif %}
"""


def jinja_template(name: str, tokenizer: Tokenizer) -> str:
    """The template of the format called `name`, with the Python tool announced in it."""
    opening = chat_format(name, tokenizer).opening([], [PYTHON])
    head = tokenizer.decode(opening, skip_special_tokens=False).removesuffix(HEADER)
    settled = {"HEAD": head, "GAP": GAPS[name], "HEADER": HEADER}
    lines = [f"{{%- set {key} = {json.dumps(value)} %}}" for key, value in settled.items()]
    return "\n".join([*lines, TURNS])
