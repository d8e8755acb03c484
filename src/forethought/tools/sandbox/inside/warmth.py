"""What well-known packages need around a fork: parts that they load late, and fresh randomness."""

import importlib
import sys

_LATE = {"numpy": ("numpy.random", "numpy.linalg", "numpy.fft")}


def warm_up() -> None:
    """Load now, once, what these packages would load in every program anew."""
    for package, parts in _LATE.items():
        if package in sys.modules:
            for part in parts:
                importlib.import_module(part)
    if "sympy" in sys.modules:
        sympy = sys.modules["sympy"]
        x = sympy.Symbol("x")
        sympy.solve(x**2 - 2, x)
        sympy.integrate(sympy.sin(x) * x, x)


def reseed() -> None:
    """Give this process its own random numbers, as Python does for its own generator."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
