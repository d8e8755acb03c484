"""In which order gradients are timed, and in what portions they are made."""

import subprocess
import sys

from benchmarks.training_speed import answers, options_of

from forethought.learning.settings import ComputeSettings

SAYING = """
import sys
for _ in sys.stdin:
    with open(sys.argv[2], "a") as heard:
        heard.write(sys.argv[1])
    print("{}", flush=True)
"""


def test_ways_take_turns_in_alternating_order(tmp_path):
    heard = tmp_path / "heard"
    children = {
        way: subprocess.Popen(
            [sys.executable, "-c", SAYING, way, str(heard)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for way in "abc"
    }
    told = answers(children, 3)
    for child in children.values():
        child.communicate()
    assert told == {way: [{}, {}, {}] for way in "abc"}
    assert heard.read_text() == "abccbaabc"


def test_portions_are_those_that_learners_have_by_default():
    options, compute = options_of(["small"]), ComputeSettings()
    assert options.micro_tokens == compute.micro_tokens
    assert options.logit_tokens == compute.logit_tokens
