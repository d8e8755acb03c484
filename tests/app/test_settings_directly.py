"""Keys whose effect is seen best without a run: each is changed, and something else comes out."""

import asyncio
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
import torch
from benchmarks.small import write_problems

from forethought.agents.groups import attempt_groups, refuse_unmeasured
from forethought.app.engine import start_engine, worker_count
from forethought.app.problems import Division, FileProblems, GSM8KProblems, held_out, training_side
from forethought.core.errors import RecipeError, SandboxError
from forethought.core.messages import ToolStatus
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Stop
from forethought.core.verdict import Verdict
from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.settings import ComputeSettings, OptimizerSettings
from forethought.tools.protocol import for_attempt
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.pool import Pool
from forethought.tools.settings import PythonSettings
from scripted import attempt, call, graded, only, says
from tiny import local_model

ONE_EACH = Division(pilot=0, measure=0, collect=1)


def write_gsm8k(path, answer):
    path.write_text(json.dumps({"question": "6 * 7?", "answer": f"#### {answer}"}) + "\n")


def test_problems_come_from_the_file_of_their_side(tmp_path):
    for name in ("one", "two", "three"):
        write_problems(tmp_path / f"{name}.jsonl", 1)
    paths = {name: str(tmp_path / f"{name}.jsonl") for name in ("one", "two", "three")}
    settings = FileProblems(type="file", train=paths["one"], held_out=paths["two"])
    assert training_side(settings, ONE_EACH, 0).collect[0].id == "one-0"
    assert held_out(settings, 5)[0].id == "two-0"
    other = FileProblems(type="file", train=paths["two"], held_out=paths["three"])
    assert training_side(other, ONE_EACH, 0).collect[0].id == "two-0"
    assert held_out(other, 5)[0].id == "three-0"


def test_gsm8k_problems_come_from_the_file_of_their_side(tmp_path):
    for name, answer in (("one", 1), ("two", 2)):
        write_gsm8k(tmp_path / f"{name}.jsonl", answer)
    settings = GSM8KProblems(
        type="gsm8k", train=str(tmp_path / "one.jsonl"), held_out=str(tmp_path / "two.jsonl")
    )
    assert training_side(settings, ONE_EACH, 0).collect[0].answer == "1"
    assert held_out(settings, 5)[0].answer == "2"


def test_most_calculations_leaves_longer_gsm8k_problems_out(tmp_path):
    rows = ("2+2=<<2+2=4>>4\n#### 4", "2+2=<<2+2=4>>4\n4*2=<<4*2=8>>8\n#### 8")
    path = tmp_path / "two.jsonl"
    path.write_text("".join(json.dumps({"question": "?", "answer": row}) + "\n" for row in rows))
    both = GSM8KProblems(type="gsm8k", train=str(path), held_out=str(path))
    assert [problem.answer for problem in held_out(both, 5)] == ["4", "8"]
    short = both.model_copy(update={"most_calculations": 1})
    assert [problem.answer for problem in held_out(short, 5)] == ["4"]


def test_max_turns_decides_how_often_an_agent_may_call():
    script = [says("", call())] * 3 + [says("42")]
    assert only(attempt(script, max_turns=3)).stop is Stop.ANSWERED
    assert only(attempt(script, max_turns=2)).stop is Stop.TURN_LIMIT


def test_max_tokens_decides_how_much_an_agent_may_say():
    script = [says("", call(), tokens=5), says("42")]
    assert only(attempt(script, max_tokens=9)).stop is Stop.ANSWERED
    assert only(attempt(script, max_tokens=5)).stop is Stop.TOKEN_LIMIT


def test_calls_per_turn_decides_how_many_calls_are_run():
    script = [says("", call(id="a"), call(id="b")), says("42")]
    statuses = {
        limit: [reply.status for reply in only(attempt(script, calls_per_turn=limit)).replies]
        for limit in (1, 2)
    }
    assert statuses == {
        1: [ToolStatus.OK, ToolStatus.MODEL_ERROR],
        2: [ToolStatus.OK, ToolStatus.OK],
    }


def test_max_seconds_decides_how_long_an_agent_may_go_on_calling():
    script = [says("", call())] * 2 + [says("42")]
    assert only(attempt(script, max_seconds=1e-9)).stop is Stop.TIME_LIMIT
    assert only(attempt(script, max_seconds=0)).stop is Stop.ANSWERED
    assert only(attempt(script, max_seconds=1e9)).stop is Stop.ANSWERED


def test_stop_at_faults_decides_whether_a_programs_fault_ends_the_run():
    script = [says("", call()), KeyError("x")]
    assert not attempt(script).measured
    with pytest.raises(KeyError):
        attempt(script, stop_at_faults=True)


@pytest.mark.parametrize("setting", ["rl.limits.not_measured", "eval.max_not_measured"])
def test_a_limit_of_not_measured_decides_when_attempts_are_refused(setting):
    groups = [graded("p", "++-?")]
    refuse_unmeasured(groups, 0.25, setting)
    with pytest.raises(RecipeError, match=rf"{setting} = 0\.2; 1 of them: no sandbox"):
        refuse_unmeasured(groups, 0.2, setting)


def test_singleton_decides_what_an_attempt_without_company_gets():
    alone = {
        kind: group_advantages([0.5], ["g"], AdvantageSettings(kind="dr_grpo", singleton=kind))
        for kind in ("zero", "raw")
    }
    assert alone == {"zero": [0.0], "raw": [0.5]}


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_decides_who_computes(workers):
    compute = ComputeSettings(device="cpu", workers=workers)
    assert worker_count(local_model(), compute) == workers
    with start_engine(local_model(), compute) as engine:
        assert engine.crew.size == max(1, workers)


def test_device_decides_where_the_model_is():
    with start_engine(local_model(), ComputeSettings(device="cpu", workers=0)) as engine:
        assert {each.device.type for each in engine.model.network.parameters()} == {"cpu"}
    compute = ComputeSettings(device="cuda", workers=0)
    if torch.cuda.is_available():
        with start_engine(local_model(), compute) as engine:
            assert {each.device.type for each in engine.model.network.parameters()} == {"cuda"}
    else:
        with (
            pytest.raises(RecipeError, match=r"compute\.device"),
            start_engine(local_model(), compute),
        ):
            raise AssertionError("it must not start")


def threads_of(replica, payload, port):
    """The job: how many threads compute it."""
    return torch.get_num_threads()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_decides_how_many_threads_compute(threads):
    compute = ComputeSettings(device="cpu", workers=0, threads=threads)
    with start_engine(local_model(), compute) as engine:
        assert engine.crew.run_now(threads_of, [None]) == [threads]
        assert torch.get_num_threads() == 1  # another pool of threads would slow that one


def test_deterministic_decides_how_rounds_of_sampling_begin():
    for deterministic in (True, False):
        compute = ComputeSettings(device="cpu", workers=0, deterministic=deterministic)
        with start_engine(local_model(), compute) as engine:
            assert engine.sampler.deterministic is deterministic


def test_portions_of_computation_reach_whoever_computes():
    compute = ComputeSettings(device="cpu", workers=0, micro_tokens=7, logit_tokens=3)
    with start_engine(local_model(), compute) as engine:
        learner = engine.learner(OptimizerSettings(), total_steps=1)
        for computing in (engine.compute, learner.compute):
            assert (computing.micro_tokens, computing.logit_tokens) == (7, 3)


@dataclass
class Counting:
    """A solver that remembers how many of its attempts were open at once."""

    open: int = 0
    most: int = 0
    done: list[str] = field(default_factory=list)

    async def attempt(self, problem, key):
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        return Episode(id=key.episode, problem=problem, trajectories=(), verdict=Verdict.wrong())


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("at_once", [1, 3])
def test_at_once_decides_how_many_attempts_are_open(at_once, deterministic):
    flow = ComputeSettings(at_once=at_once, deterministic=deterministic).flow
    problems = [Problem(id=str(n), prompt="?", answer="1") for n in range(6)]
    solver = Counting()
    asyncio.run(attempt_groups(solver, problems, size=1, seed=0, stage="s", flow=flow))
    assert solver.most == at_once


def run_program(code, **limits):
    """What the tool replies to a program, with some of its settings chosen."""

    async def run():
        async with PythonTool(PythonSettings(servers=1, **limits)) as tool:
            return await tool.call(call(json.dumps({"code": code})))

    return asyncio.run(run())


def test_wall_seconds_decides_how_long_a_program_may_take():
    code = "import time; time.sleep(0.5); print(1)"
    assert run_program(code, wall_seconds=0.1).status is ToolStatus.TIMEOUT
    assert run_program(code, wall_seconds=20.0).status is ToolStatus.OK


def test_cpu_seconds_decides_how_long_a_program_may_compute():
    code = "import time\nwhile time.process_time() < 1.5: pass\nprint(1)"
    assert run_program(code, cpu_seconds=1, wall_seconds=60.0).status is ToolStatus.TIMEOUT
    assert run_program(code, cpu_seconds=30, wall_seconds=60.0).status is ToolStatus.OK


def test_memory_mb_decides_how_much_a_program_may_hold():
    code = "held = bytearray(b'x') * (100 << 20)\nprint(len(held) >> 20)"
    assert run_program(code, memory_mb=64).status is ToolStatus.MEMORY
    assert run_program(code, memory_mb=256).text == "100"


@pytest.mark.parametrize("processes", [3, 6])
def test_processes_decides_how_many_a_program_may_start(processes):
    code = (
        "import os, signal\nchildren = 0\ntry:\n    while True:\n"
        "        if not os.fork(): signal.pause()\n        children += 1\n"
        "except OSError: print(children)"
    )
    assert run_program(code, processes=processes).text == str(processes - 1)


def test_preload_decides_what_is_imported_before_a_program_starts():
    code = "import sys; print('colorsys' in sys.modules)"
    assert run_program(code, preload=("colorsys",)).text == "True"
    assert run_program(code, preload=()).text == "False"


def test_python_decides_which_packages_programs_find(tmp_path):
    packages = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", packages], check=True)
    (folder,) = packages.glob("lib/python3*/site-packages")
    (folder / "only_there.py").write_text("found = 42")
    code = "import only_there\nonly_there.found"
    assert run_program(code, python=str(packages / "bin" / "python")).text == "42"
    assert "No module named 'only_there'" in run_program(code).text


def run_in_attempts(programs, **settings):
    """What the tool replies to programs: a list of them for each attempt, all open at once."""

    async def run():
        async with PythonTool(PythonSettings(servers=1, **settings)) as tool, AsyncExitStack() as s:
            replies = []
            for attempt in programs:
                own = await s.enter_async_context(for_attempt(tool))
                for code in attempt:
                    if isinstance(code, float):
                        await asyncio.sleep(code)
                    else:
                        replies.append(await own.call(call(json.dumps({"code": code}))))
            return [reply.text for reply in replies]

    return asyncio.run(run())


def test_state_decides_whether_variables_are_kept_within_an_attempt():
    programs = [["x = 41", "x + 1"], ["'x' in globals()"]]
    assert run_in_attempts(programs, state="session")[1:] == ["42", "False"]
    assert "NameError" in run_in_attempts(programs, state="stateless")[1]


def test_max_sessions_decides_how_many_may_be_open():
    programs = [["1"], ["2"]]
    assert run_in_attempts(programs, state="session", max_sessions=2) == ["1", "2"]
    with pytest.raises(SandboxError, match=r"busy: 1 sessions .* raise tool\.max_sessions"):
        run_in_attempts(programs, state="session", max_sessions=1)


def test_session_idle_seconds_decides_when_a_session_is_ended():
    programs = [["x = 41", 2.5, "x + 1"]]
    lost = run_in_attempts(programs, state="session", session_idle_seconds=0.1)[1]
    assert "NameError" in lost
    assert lost.endswith("[the variables of earlier programs are lost]")
    assert run_in_attempts(programs, state="session", session_idle_seconds=60.0)[1] == "42"


@pytest.mark.parametrize("queue", [1, 3])
def test_queue_decides_how_many_calls_may_wait(queue):
    async def run():
        settings = PythonSettings(servers=1, calls_per_server=1, queue=queue)
        async with Pool(settings.model_copy(update={"tier": "namespaces"})) as pool:
            calls = (pool.run("1") for _ in range(6))
            return await asyncio.gather(*calls, return_exceptions=True)

    refused = [each for each in asyncio.run(run()) if isinstance(each, SandboxError)]
    assert len(refused) == 6 - 1 - queue
    assert f"busy: {queue} programs wait" in str(refused[0])


def most_at_once(seconds, **places):
    """How many of four programs, each of so many seconds, ran beside each other."""
    settings = PythonSettings(tier="namespaces", **places)
    spans = f"import time; a = time.time(); time.sleep({seconds}); print(a, time.time())"

    async def run():
        async with Pool(settings) as pool:
            return await asyncio.gather(*(pool.run(spans) for _ in range(4)))

    found = [tuple(map(float, outcome.out.split())) for outcome in asyncio.run(run())]
    return max(sum(begun <= at < ended for begun, ended in found) for at, _ in found)


@pytest.mark.parametrize(("servers", "calls_per_server"), [(1, 1), (1, 2), (2, 1)])
def test_servers_and_calls_per_server_decide_how_many_programs_run_at_once(
    servers, calls_per_server
):
    places = {"servers": servers, "calls_per_server": calls_per_server}
    # On a busy machine a short one may last long, too.
    assert most_at_once(0.2, **places, long_calls_per_server=0) == servers * calls_per_server


@pytest.mark.parametrize("aside", [0, 1, 2])
def test_long_calls_per_server_decides_how_many_step_aside(aside):
    places = {"servers": 1, "calls_per_server": 1, "long_calls_per_server": aside}
    assert most_at_once(1.5, **places) == 1 + aside
