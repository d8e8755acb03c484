"""The ladder of tiers: the first that withstands is taken, and the others are named in words."""

import asyncio
import logging

import pytest

from forethought.core.errors import RecipeError, SandboxError
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.server import start_server
from forethought.tools.sandbox.tiers import Examined, Opened, examine, open_backend
from forethought.tools.settings import PythonSettings
from tools.conftest import SMALL, SYSTEM_PYTHON

AUTO = SMALL.model_copy(update={"servers": 1, "python": SYSTEM_PYTHON})


def opened(settings, start):
    async def run():
        async with PythonTool(settings, start) as tool:
            outcome = await tool.opened.backend.run("6 * 7")
            assert outcome.out == b"42\n"
            return tool.opened

    return asyncio.run(run())


def test_with_all_rights_the_first_tier_is_taken():
    found = opened(AUTO, start_server)
    assert (found.tier, found.refused) == ("namespaces", ())
    assert "'namespaces'" in found.sentence


@pytest.mark.parametrize(
    ("mode", "tier", "refused"),
    [
        ("container", "landlock-uid", ["namespaces"]),
        ("user", "landlock", ["namespaces", "landlock-uid"]),
    ],
)
def test_with_fewer_rights_a_lower_tier_is_taken_and_said(
    with_fewer_rights, caplog, mode, tier, refused
):
    with caplog.at_level(logging.WARNING, "forethought.tools"):
        found = opened(AUTO, with_fewer_rights(mode))
    assert found.tier == tier
    assert [each.tier for each in found.refused] == refused
    assert all("could not start" in each.refusal for each in found.refused)
    for name in (tier, *refused):
        assert name in found.sentence
    assert found.sentence in caplog.text


def test_a_module_that_cannot_be_preloaded_is_no_fault_of_any_tier():
    settings = AUTO.model_copy(update={"preload": ("nope",)})
    with pytest.raises(RecipeError, match=r"names 'nope'.* install it for tool.python") as refused:
        opened(settings, start_server)
    assert "Remedy" not in str(refused.value)


def test_a_tier_that_is_asked_for_is_not_replaced_by_another(with_fewer_rights):
    settings = AUTO.model_copy(update={"tier": "namespaces"})
    with pytest.raises(RecipeError, match=r"namespaces: it could not start .* Remedy: run as root"):
        opened(settings, with_fewer_rights("user"))


def test_a_python_that_programs_could_not_read_is_named(with_fewer_rights, tmp_path):
    settings = AUTO.model_copy(update={"tier": "landlock-uid", "python": ""})
    examined, pool = asyncio.run(examine(settings, "landlock-uid", start_server))
    if pool is not None:
        asyncio.run(pool.__aexit__(None, None, None))
        pytest.skip("this Python can be read by everybody")
    assert "closed to the users that programs run as: name in tool.python" in examined.refusal


def test_where_nothing_can_start_every_tier_is_named_with_its_remedy():
    async def fails(settings):
        raise SandboxError(f"no {settings.tier} today")

    with pytest.raises(RecipeError) as caught:
        asyncio.run(open_backend(AUTO, fails))
    for tier in ("namespaces", "landlock-uid", "landlock"):
        assert f"{tier}: it could not start (no {tier} today). Remedy:" in str(caught.value)


def test_a_tier_that_lets_an_attack_through_is_refused():
    async def weak(settings):
        return await start_server(settings.model_copy(update={"tier": "none"}))

    examined, pool = asyncio.run(examine(AUTO, "namespaces", weak))
    assert pool is None
    assert "killing a process of the host" in examined.refusal
    assert examined.refusal.startswith("it allowed ")


def test_a_lower_tier_says_what_it_lacks():
    found = Opened(
        backend=None, tier="landlock", refused=(Examined(tier="namespaces", problem="no"),)
    )
    assert "programs cannot start processes" in found.sentence
    assert "namespaces was refused: no" in found.sentence


def test_a_python_that_is_none_is_refused(tmp_path):
    for name in (str(tmp_path / "missing"), "/bin/true"):
        with pytest.raises(RecipeError, match=r"tool\.python=.* is no Python"):
            opened(PythonSettings(python=name), start_server)
