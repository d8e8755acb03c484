"""What a recipe may say of the Python tool."""

from typing import Annotated, Literal

from pydantic import Field

from forethought.core.settings import Settings


class PythonSettings(Settings):
    """How programs run: how far apart from the host, how many at once, and with what limits."""

    isolation: Literal["namespaces", "process"] = "namespaces"
    """`namespaces` keeps programs away from the host; `process` only limits them."""
    allow_weak: bool = False
    """Permit `isolation = "process"`. For trusted problems only."""
    servers: Annotated[int, Field(ge=1, le=64)] = 2
    """Fork servers; one for each core that programs may use."""
    calls_per_server: Annotated[int, Field(ge=1, le=32)] = 4
    """Calls that one server runs at once. More wait in line, outside of their deadline."""
    wall_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 5.0
    """Time that a program may take."""
    cpu_seconds: Annotated[int, Field(ge=1, le=86_400)] = 5
    """Processor time that each process of a program may take."""
    memory_mb: Annotated[int, Field(ge=16, le=1_048_576)] = 512
    """Memory that a program may hold, all its processes together."""
    processes: Annotated[int, Field(ge=2, le=4096)] = 32
    """Processes and threads that a program may have at once (with namespaces)."""
    shown_characters: Annotated[int, Field(ge=100, le=30_000)] = 2000
    """Output shown to the model; of more, the beginning and the end."""
    preload: tuple[str, ...] = ()
    """Modules of the standard library imported once, before programs start."""
