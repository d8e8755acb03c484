"""The chat format `compact` as a Jinja template, by which other programs write conversations.

Templates of the other formats are published with the models that speak them. Not covered: calls
that could not be read, and content in parts.
"""

from forethought.policy.protocol import ThinkingHistory

_THINKING = """
  {%- if message.reasoning_content -%}
    {{- "<think>" + message.reasoning_content + "</think>" -}}
  {%- endif -%}"""
_COMPACT = """
{%- if tools -%}
  {{- "<|im_start|>system\\n" -}}
  {%- if messages and messages[0].role == "system" -%}
    {{- messages[0].content -}}
    {%- set messages = messages[1:] -%}
  {%- endif -%}
  {{- "<tools>" -}}
  {%- for tool in tools -%}
    {{- (" " if not loop.first else "") + tool.function.name -}}
    {{- "(" + (tool.function.parameters.properties | join(", ")) + ")" -}}
  {%- endfor -%}
  {{- "</tools><|im_end|>\\n" -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role != "tool" -%}
    {{- "<|im_start|>" + message.role + "\\n" -}}THINKING
    {{- message.content or "" -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set given = call.function.arguments -%}
      {{- '<tool_call>{"name": ' + (call.function.name | tojson) + ', "arguments": ' -}}
      {{- (given if given is string else given | tojson) + "}</tool_call>" -}}
    {%- endfor -%}
    {{- "<|im_end|>\\n" -}}
  {%- else -%}
    {%- if loop.first or messages[loop.index0 - 1].role != "tool" -%}
      {{- "<|im_start|>user\\n" -}}
    {%- endif -%}
    {{- "<tool_response>" + message.content + "</tool_response>" -}}
    {%- if loop.last or messages[loop.index0 + 1].role != "tool" -%}
      {{- "<|im_end|>\\n" -}}
    {%- endif -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "<|im_start|>assistant\\n" -}}
{%- endif -%}
""".lstrip()


def chat_template(format_name: str, thinking: ThinkingHistory | None) -> str | None:
    """The template of a format, rows as in `openai_form`; None where it is not written here.

    Under the history `strip` it leaves all thinking out, as a policy's prompts do.
    """
    if format_name != "compact":
        return None
    return _COMPACT.replace("THINKING", "" if thinking == "strip" else _THINKING)
