"""Which isolation the Python tool runs in: probed on this host, never guessed, never hushed up."""

import os
import platform
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from forethought.core.errors import RecipeError, SandboxError
from forethought.tools.sandbox.fleet import StartServer
from forethought.tools.sandbox.inside.limits import NOT_PRELOADED
from forethought.tools.sandbox.outcome import Outcome
from forethought.tools.sandbox.pool import Pool, Session
from forethought.tools.sandbox.probe import attack, try_out
from forethought.tools.sandbox.remote import Service
from forethought.tools.sandbox.server import start_server
from forethought.tools.sandbox.usage import Usage
from forethought.tools.settings import PythonSettings, Tier

LADDER: tuple[Tier, ...] = ("namespaces", "landlock-uid", "landlock")
"""What `auto` tries, the strongest first."""
CONSENT = "FORETHOUGHT_UNSAFE_TOOL"
"""The environment variable that must be `1` for `tool.tier = "none"`."""
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "namespaces": (
            "run as root, or let users make namespaces: on Ubuntu sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0, elsewhere user.max_user_namespaces; "
            "in a container a seccomp profile that permits unshare and mount"
        ),
        "landlock-uid": (
            "name in tool.python an interpreter that every user can read, and run as root (a "
            "container's root will do) on Linux 5.13 or later with Landlock"
        ),
        "landlock": "run on Linux 5.13 or later with landlock among its security modules",
    }
)


class Backend(Protocol):
    """What runs programs: a `Pool` of this host's fork servers, or a `Service` elsewhere."""

    @property
    def usage(self) -> Usage:
        """All that it did so far."""
        ...

    async def run(self, code: str, stdin: str = "", session: Session | None = None) -> Outcome:
        """Run one program. Raises `SandboxError`."""
        ...

    def open_session(self) -> Session:
        """Begin a session. Raises `RecipeError` where there are none."""
        ...

    def close_session(self, session: Session) -> None:
        """End one."""
        ...

    async def __aexit__(self, kind: None, error: None, trace: None) -> None:
        """Leave nothing behind."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What came of trying one tier: why it could not start, and each attack's success.

    >>> Examined(tier="landlock", attacks={"raising a limit": True}).refusal
    'it allowed raising a limit'
    """

    tier: Tier
    problem: str = ""
    attacks: Mapping[str, bool] = field(default_factory=dict[str, bool])

    @property
    def refusal(self) -> str:
        """Why it must not be used; empty if it may be."""
        succeeded = [name for name, success in self.attacks.items() if success]
        return self.problem or (f"it allowed {', '.join(succeeded)}" if succeeded else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open backend, its tier, and the tiers before it that were refused."""

    backend: Backend
    tier: Tier
    refused: tuple[Examined, ...] = ()

    @property
    def sentence(self) -> str:
        """Which tier it is and why, in words."""
        if not self.refused:
            return f"The Python tool's programs run in the tier {self.tier!r}."
        why = "; ".join(f"{each.tier} was refused: {each.refusal}" for each in self.refused)
        note = ", and programs cannot start processes" if self.tier == "landlock" else ""
        return (
            f"The Python tool's programs run in the lower tier {self.tier!r}{note}. "
            f"{why}. `forethought doctor sandbox` says what would help."
        )


def refuse_host() -> None:
    """Raise `RecipeError` on hosts that the sandbox does not know."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise RecipeError(
            f"the Python tool runs on x86-64 Linux, not on {sys.platform} {platform.machine()}: "
            'train on such a machine or in a virtual one, or use tool.tier="remote"'
        )


async def open_backend(settings: PythonSettings, start: StartServer = start_server) -> Opened:
    """Open what `tool.tier` asks for. Raises `RecipeError` if that is not to be had here."""
    if settings.tier == "remote":
        return await open_service(Service(settings))
    refuse_host()
    if settings.tier == "none":
        return await _open_unsafe(settings, start)
    tiers = LADDER if settings.tier == "auto" else (settings.tier,)
    refused: list[Examined] = []
    for tier in tiers:
        examined, pool = await examine(settings, tier, start)
        if pool is not None:
            return Opened(backend=pool, tier=tier, refused=tuple(refused))
        if NOT_PRELOADED in examined.problem:
            raise RecipeError(f"the Python tool cannot be opened: {examined.problem}")
        refused.append(examined)
    raise RecipeError(_refusals(settings, refused))


async def open_service(service: Service) -> Opened:
    """Try a service out. Raises `RecipeError` if it runs no program; it is closed then."""
    async with AsyncExitStack() as opened:
        opened.push_async_callback(service.__aexit__, None, None, None)
        try:
            await try_out(service)
        except SandboxError as error:
            raise RecipeError(
                f"tool.url={service.address!r} runs no program ({error}): start the service, or "
                'give the address of one that is up, or use tool.tier="auto"'
            ) from error
        opened.pop_all()
    return Opened(backend=service, tier="remote")


async def examine(
    settings: PythonSettings, tier: Tier, start: StartServer = start_server
) -> tuple[Examined, Pool | None]:
    """Start a tier and attack it. The pool is open if it withstood, and None otherwise.

    Raises `RecipeError` where the settings would fail in every tier.
    """
    chosen = settings.model_copy(update={"tier": tier})
    pool = Pool(chosen, start)
    try:
        await pool.__aenter__()
    except SandboxError as error:
        return Examined(tier=tier, problem=f"it could not start ({error})"), None
    try:
        await try_out(pool)
        examined = Examined(tier=tier, attacks=await attack(pool, chosen))
    except SandboxError as error:
        examined = Examined(tier=tier, problem=f"it could not run programs ({error})")
    except BaseException:
        await pool.__aexit__(None, None, None)
        raise
    if not examined.refusal:
        return examined, pool
    await pool.__aexit__(None, None, None)
    return examined, None


async def _open_unsafe(settings: PythonSettings, start: StartServer) -> Opened:
    if os.environ.get(CONSENT) != "1":
        raise RecipeError(
            'tool.tier="none" lets programs read files, use the network and end processes: if '
            f"every problem and the model are trusted, set {CONSENT}=1 in the environment; "
            'otherwise tool.tier="auto"'
        )
    pool = Pool(settings, start)
    try:
        await pool.__aenter__()
    except SandboxError as error:
        raise RecipeError(f'tool.tier="none" could not start ({error})') from error
    return Opened(backend=pool, tier="none")


def _refusals(settings: PythonSettings, refused: list[Examined]) -> str:
    reasons = "; ".join(
        f"{each.tier}: {each.refusal}. Remedy: {REMEDIES[each.tier]}" for each in refused
    )
    preload = f" (tool.preload={list(settings.preload)})" if settings.preload else ""
    return (
        f"no isolation of the Python tool holds on this host{preload}. {reasons}. Or use "
        'tool.tier="remote"; `forethought doctor sandbox` shows all of it'
    )
