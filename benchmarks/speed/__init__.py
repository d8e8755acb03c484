"""How fast Forethought is, beside what this machine could do and what other tools do.

    python -m benchmarks.speed all          # every part, then docs/performance.md's tables
    python -m benchmarks.speed step --quick

Every measurement runs in a process of its own; subjects take turns; what is reported is measured.
"""
