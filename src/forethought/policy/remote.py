"""A policy behind any endpoint that speaks OpenAI's chat completions.

For teachers and for exams. Such an endpoint returns no token ids, so a conversation has no
segments and cannot be trained on.
"""

import os
import time
from asyncio import Semaphore
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from pydantic import Field

from forethought.core.errors import PolicyError, RecipeError, boundary
from forethought.core.messages import Assistant, Message, ToolReply, ToolSpec
from forethought.core.randomness import RolloutKey
from forethought.core.settings import Settings
from forethought.core.trajectory import Finish, Tokens
from forethought.policy.formats import stripped_history
from forethought.policy.openai_form import answer_from_openai, messages_to_openai
from forethought.policy.protocol import SamplingSettings, Spoken, ThinkingHistory

# `openai` takes a second to import: only those wait for it who have an endpoint.
if TYPE_CHECKING:
    from openai import AsyncOpenAI


class RemoteSettings(Settings):
    """An endpoint and a model on it."""

    type: Literal["openai"] = "openai"
    base_url: str
    """Address up to and without `/chat/completions`; it usually ends in `/v1`."""
    model: str
    """Name of the model as the endpoint knows it."""
    key_variable: str = ""
    """Environment variable that holds the API key; empty for an endpoint that needs none."""
    timeout_seconds: float = Field(default=300.0, gt=0)
    """How long one request may take."""
    retries: int = Field(default=3, ge=0)
    """How often a request is repeated that failed for want of the endpoint."""
    concurrency: int = Field(default=16, ge=1)
    """Requests in flight at most."""
    thinking: ThinkingHistory = "strip"
    """Whether earlier thinking is sent back to the model. Many endpoints refuse it."""
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The request's field for the token limit; newer hosted models want the second."""


class RemotePolicy:
    """A `Policy` that asks an endpoint. Close it, or use it as an async context.

    Raises `RecipeError` when the variable that should hold the key is not set.
    """

    def __init__(self, settings: RemoteSettings, sampling: SamplingSettings) -> None:
        self._settings = settings
        self._sampling = sampling
        self._client = _client(settings)
        self._places = Semaphore(settings.concurrency)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def open(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], key: RolloutKey
    ) -> "RemoteConversation":
        """Begin a conversation; the seed of each turn derives from `key`."""
        return RemoteConversation(self, messages, tools, key)

    async def answer(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], max_tokens: int, seed: int
    ) -> Spoken:
        """The next turn of a conversation. Raises `PolicyError` with the endpoint and the model."""
        request = self._request(messages, tools, max_tokens, seed)
        made = sum(len(message.calls) for message in messages if isinstance(message, Assistant))
        async with self._places:
            begun = time.monotonic()
            with boundary(PolicyError, _name(self._settings)):
                body = await self._body(request)
                spoken = _spoken(body, tools, made, self._sampling.temperature)
                return replace(spoken, seconds=time.monotonic() - begun)

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], max_tokens: int, seed: int
    ) -> dict[str, Any]:
        settings, sampling = self._settings, self._sampling
        shown = stripped_history(messages) if settings.thinking == "strip" else messages
        request: dict[str, Any] = {
            "model": settings.model,
            "messages": messages_to_openai(shown),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            # Some servers hold a seed in 32 bits with a sign.
            "seed": seed % 2**31,
            settings.limit_field: min(max_tokens, sampling.max_tokens),
        }
        return request | ({"tools": [tool.as_function() for tool in tools]} if tools else {})

    async def _body(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        from openai import BadRequestError  # noqa: PLC0415

        completions = cast("Any", self._client.chat.completions.with_raw_response)
        try:
            response = await completions.create(**request)
        except BadRequestError as error:
            if "context" in str(error) and "length" in str(error):
                return {"choices": [{"finish_reason": "context_full", "message": {}}]}
            raise
        # The raw body, because a server's slip in one field must not void the others.
        return response.http_response.json()


class RemoteConversation:
    """One conversation with an endpoint, kept in words."""

    def __init__(
        self,
        policy: RemotePolicy,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        key: RolloutKey,
    ) -> None:
        self._policy = policy
        self._messages = list(messages)
        self._tools = tuple(tools)
        self._key = key
        self._turns = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    @property
    def segments(self) -> tuple[Tokens, ...]:
        """None: the endpoint returns no token ids."""
        return ()

    async def speak(self, max_tokens: int) -> Spoken:
        """Ask for the next turn. Raises `PolicyError` when the endpoint does not answer."""
        seed = self._key.turn_seed(self._turns)
        spoken = await self._policy.answer(self._messages, self._tools, max_tokens, seed)
        self._turns += 1
        self._messages.append(spoken.message)
        return spoken

    async def hear(self, replies: Sequence[ToolReply]) -> None:
        """Take in what tools replied."""
        self._messages.extend(replies)


async def check_endpoint(settings: RemoteSettings, section: str) -> None:
    """Make sure that the endpoint in that `section` of a recipe answers and knows the model.

    Raises `RecipeError` that says what to change.
    """
    try:
        await _check(settings)
    except RecipeError as error:
        raise RecipeError(f"{section}: {error}") from error


async def _check(settings: RemoteSettings) -> None:
    from openai import APIStatusError, OpenAIError  # noqa: PLC0415

    async with _client(settings) as client:
        try:
            known = await _known_models(client)
        except APIStatusError as error:
            remedy = (
                f"put a valid API key into the variable named by key_variable "
                f"({settings.key_variable or 'none is named'})"
                if error.status_code in {401, 403}
                else "check base_url, which usually ends in /v1"
            )
            raise RecipeError(
                f"{_name(settings)}: the list of models answers {error.status_code}: {remedy}"
            ) from error
        except OpenAIError as error:
            raise RecipeError(
                f"{_name(settings)} cannot be reached ({error}): start the server, or correct "
                "base_url"
            ) from error
        except (ValueError, LookupError, TypeError) as error:
            raise RecipeError(
                f"{_name(settings)} answers, but not as an OpenAI endpoint: check base_url, which "
                "usually ends in /v1"
            ) from error
    # Some endpoints list a model under a path and answer to its last part.
    if not any(f"/{name}".endswith(f"/{settings.model}") for name in known):
        listed = ", ".join(known[:10])
        raise RecipeError(f"{_name(settings)}: no such model: choose one of {listed}")


async def _known_models(client: "AsyncOpenAI") -> list[str]:
    """The names in the endpoint's list. Raises what reading something else raises."""
    response = await cast("Any", client.models.with_raw_response).list()
    body: Any = response.http_response.json()
    known = [model["id"] for model in body["data"]]
    if not known or not all(isinstance(name, str) for name in known):
        raise ValueError("no names")
    return known


def _client(settings: RemoteSettings) -> "AsyncOpenAI":
    from openai import AsyncOpenAI  # noqa: PLC0415

    variable = settings.key_variable
    if variable and not os.environ.get(variable):
        raise RecipeError(
            f"{_name(settings)}: the environment variable {variable} is not set: put the API key "
            "there, or clear key_variable if the endpoint needs none"
        )
    return AsyncOpenAI(
        base_url=settings.base_url,
        api_key=os.environ[variable] if variable else "none",
        timeout=settings.timeout_seconds,
        max_retries=settings.retries,
    )


def _name(settings: RemoteSettings) -> str:
    return f"the model {settings.model!r} at {settings.base_url}"


def _spoken(
    body: Mapping[str, Any], tools: Sequence[ToolSpec], first_id: int, temperature: float
) -> Spoken:
    choice: Mapping[str, Any] = body["choices"][0]
    row: Mapping[str, Any] = choice["message"]
    usage: Mapping[str, Any] = body.get("usage") or {}
    parsed = answer_from_openai(row, tools, first_id)
    reason = choice.get("finish_reason")
    refusal = row.get("refusal")
    if reason == "content_filter" or refusal:
        finish = Finish.REFUSED
    elif parsed.unclosed_thinking and reason not in _FINISHES:
        finish = Finish.UNCLOSED_THINKING
    else:
        finish = _FINISHES.get(str(reason), Finish.END_OF_TURN)
    message = Assistant(text=str(refusal)) if refusal else parsed.message
    return Spoken(
        message=message,
        finish=finish,
        tokens=int(usage.get("completion_tokens") or 0),
        entropy=0.0,
        weight_version=0,
        temperature=temperature,
        seconds=0.0,
    )


_FINISHES = {"length": Finish.TOKEN_LIMIT, "context_full": Finish.CONTEXT_FULL}
