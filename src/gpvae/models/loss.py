"""What training minimises."""

from typing import NamedTuple

from torch import Tensor


class Loss(NamedTuple):
    """The number to minimise, and the parts it is made of; all per time step."""

    total: Tensor
    parts: dict[str, Tensor]
