"""Runs one program as a script would run, in the process that exists for nothing else.

Not trusted: from the first line of the program on, everything here is in its hands.
"""

import __future__

import ast
import builtins
import io
import linecache
import sys
import traceback
from collections import deque
from types import CodeType, ModuleType, TracebackType
from typing import Any, cast

from .frames import BAD_SYNTAX, OUT_OF_MEMORY
from .limits import grant_spare_memory

NAME = "main.py"
"""What the program's file is called in tracebacks."""

CELL = "cell.py"
"""The same for a program in a session."""

_NAMES = (NAME, CELL)
_FRAMES_SHOWN = 20
_CAUSES_SHOWN = 10
_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


Streams = tuple[io.TextIOWrapper, io.TextIOWrapper, io.TextIOWrapper]
Parts = tuple[CodeType, CodeType | None]
"""A program compiled: all of it but a last expression, and that."""


class Ending:
    """Runs a stage of a program; whatever it raises becomes the exit code and a traceback.

    `failed` is the code for an ordinary exception.
    """

    def __init__(self, stderr: io.TextIOWrapper, failed: int = 1) -> None:
        self.code = 0
        self._failed = failed
        self._stderr = stderr

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, SystemExit):
            self.code = self._exit_code(error.code)
        elif isinstance(error, MemoryError):
            self.code = OUT_OF_MEMORY
            grant_spare_memory()
            self._show(error)
        elif error is not None:
            self.code = self._failed
            self._show(error)
        return True

    def _exit_code(self, code: object) -> int:
        if code is None or isinstance(code, int):
            return (code or 0) & 0xFF
        self._stderr.write(f"{code}\n")
        return 1

    def _show(self, error: BaseException) -> None:
        _keep_user_frames(error)
        traceback.print_exception(error, file=self._stderr)


def standard_streams() -> Streams:
    """Streams for descriptors 0 to 2. Each line is written at once: a killed program keeps it."""
    return (
        io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8"),
        _writer(1),
        _writer(2),
    )


def run(source: str, streams: Streams) -> int:
    """Run the program to its end and return the exit code it should end with."""
    main = new_main(streams)
    reading = Ending(streams[2], BAD_SYNTAX)
    parts: Parts | None = None
    with reading:
        parts = compiled(source, NAME)
    if parts is None:
        return reading.code
    ending = Ending(streams[2])
    with ending:
        execute(parts, main)
    for module, finish in (("threading", "_shutdown"), ("atexit", "_run_exitfuncs")):
        with ending:
            if module in sys.modules:
                getattr(sys.modules[module], finish)()
    for stream in (sys.stdout, sys.stderr):
        with ending:
            stream.flush()
    return ending.code


def new_main(streams: Streams) -> dict[str, Any]:
    """A fresh `__main__` to run programs in, with these streams as the standard ones."""
    sys.stdin, sys.stdout, sys.stderr = streams
    # Scripts find these two, which the module `site` makes, and that is not imported here.
    builtins.__dict__.update(exit=sys.exit, quit=sys.exit)
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main.__dict__


def compiled(source: str, name: str) -> Parts:
    """The source as code. A last expression comes apart, to be displayed as at the prompt."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = compile(tree, name, "exec", dont_inherit=True)
    if last is None:
        return body, None
    shown = ast.Interactive(body=[last])
    return body, compile(shown, name, "single", body.co_flags & _FUTURES, dont_inherit=True)


def execute(parts: Parts, main: dict[str, Any]) -> None:
    """Run a compiled program in the namespace `main`."""
    body, last = parts
    exec(body, main)
    if last is not None:
        exec(last, main)


def _writer(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffered, encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


def _keep_user_frames(error: BaseException) -> None:
    """Drop the frames of this harness and of libraries, in the error and in what led to it."""
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _user_frames(current.__traceback__)
        waiting += (current.__cause__, current.__context__)
        if isinstance(current, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", current).exceptions
        if len(seen) > _CAUSES_SHOWN:
            current.__cause__ = current.__context__ = None


def _user_frames(trace: TracebackType | None) -> TracebackType | None:
    kept = deque[TracebackType](maxlen=_FRAMES_SHOWN)
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in _NAMES:
            kept.append(trace)
        trace = trace.tb_next
    chain = None
    for entry in reversed(kept):
        chain = TracebackType(chain, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return chain
