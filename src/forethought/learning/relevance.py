"""Which rows a loss can learn from.

Shapes: B rows, T positions.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false

from forethought.learning.batch import Batch
from forethought.learning.losses.catalogue import Objective


def telling_rows(batch: Batch, objective: Objective) -> list[int]:
    """The rows to compute: those with an advantage, where the loss has no use for the others.

    All of them where no row has one.
    """
    has_one_B = (batch.advantages_BT != 0).any(dim=1)
    if bool(has_one_B.any()) and not objective.reads_every_row:
        rows: list[int] = has_one_B.nonzero()[:, 0].tolist()
        return rows
    return list(range(len(batch.ids_BT)))
