"""MaxRL's advantages, which pay rare success more: pure numbers, no groups, no tensors."""


def maxrl_advantages(size: int, right: int) -> tuple[float, float]:
    """What a right and a wrong attempt get: (R - mean) / mean, where R is 1 if right and 0 if not.

    Both are 0 where none is right (2602.02710). With p the chance of being right, the expected
    gradient is that of log p, cut off: of -(sum of (1 - p)^k / k over k below `size`).

    >>> maxrl_advantages(4, 1)
    (3.0, -1.0)
    """
    return ((size - right) / right, -1.0) if right else (0.0, 0.0)
