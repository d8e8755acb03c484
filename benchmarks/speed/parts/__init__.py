"""The parts of the benchmark: what each measures, and how its table reads."""
