"""What a recipe may say of the Python tool."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings

Tier = Literal["namespaces", "landlock-uid", "landlock", "remote", "none"]
"""How programs are kept apart from the host, the strongest first."""


class PythonSettings(Settings):
    """How programs run: how far apart from the host, how many at once, and with what limits."""

    tier: Literal["auto", "namespaces", "landlock-uid", "landlock", "remote", "none"] = "auto"
    """What keeps programs apart from the host. `auto` takes the first of `namespaces`,
    `landlock-uid` and `landlock` that withstands its own attacks here, and says which."""
    url: str = ""
    """Address of a service for `tier = "remote"`, up to and without `/run_code`."""
    python: str = ""
    """Interpreter for programs, such as that of a virtual environment made for them: its
    packages can be imported. Empty for this one, with the standard library alone."""
    preload: tuple[str, ...] = ()
    """Modules imported once, before programs start."""
    state: Literal["stateless", "session"] = "stateless"
    """Whether programs of one attempt share an interpreter and its variables."""
    max_sessions: Annotated[int, Field(ge=1, le=200)] = 128
    """Sessions open at once at most; no fewer than the attempts that are (`compute.at_once`)."""
    session_idle_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 1800.0
    """Time after which a session that nobody uses is ended."""
    servers: Annotated[int, Field(ge=1, le=64)] = 2
    """Fork servers; one for each core that programs may use."""
    calls_per_server: Annotated[int, Field(ge=1, le=32)] = 4
    """Calls that one server runs at once. More wait in line, outside of their deadline."""
    long_calls_per_server: Annotated[int, Field(ge=0, le=128)] = 16
    """Calls beside those that go on once they have run for a quarter of a second, so that a few
    long ones do not hold up many short ones, to which they give way; fewer where memory would not
    hold so many."""
    queue: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """Calls that may wait in line; no fewer than all attempts make together (`compute.at_once`
    times `agent.calls_per_turn`)."""
    wall_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 5.0
    """Time that a program may take; up to five times that if others make it wait for its turn."""
    cpu_seconds: Annotated[int, Field(ge=1, le=86_400)] = 5
    """Processor time that each process of a program may take; none of its own in a session."""
    memory_mb: Annotated[int, Field(ge=16, le=1_048_576)] = 512
    """Memory that a program may hold, all its processes together."""
    processes: Annotated[int, Field(ge=2, le=4096)] = 16
    """Processes and threads that a program may have at once, where those can be counted."""
    shown_characters: Annotated[int, Field(ge=100, le=30_000)] = 2000
    """Output shown to the model; of more, the beginning and the end."""

    @model_validator(mode="after")
    def _refuse_a_service_without_an_address(self) -> Self:
        if self.tier == "remote" and not self.url:
            raise RecipeError(
                'tool.tier="remote" needs tool.url: the address of a service up to and without '
                "/run_code"
            )
        return self
