"""A critic's head on a model: what each token's state is worth, learnt beside the policy.

It is a submodule of the network, so that workers share it like everything else, and it is kept out
of the files that others read the network from.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import torch as tensors
from torch import Tensor, nn

from forethought.policy.local.decoder import Decoder

NAME = "value_head"
FILE = "value_head.safetensors"


def add_value_head(network: nn.Module) -> None:
    """Put a linear head on the last hidden states; at first every state is worth 0."""
    head = nn.Linear(Decoder(network).embedding.shape[1], 1)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    network.add_module(NAME, head)


def value_head_of(network: nn.Module) -> nn.Linear | None:
    """The head, where there is one."""
    head = dict(network.named_children()).get(NAME)
    return head if isinstance(head, nn.Linear) else None


def belongs_to_head(name: str) -> bool:
    """Whether a network's parameter of that name is the head's."""
    return name.startswith(f"{NAME}.")


def save_value_head(network: nn.Module, folder: Path) -> dict[str, Mapping[str, Tensor]]:
    """Write the head into a checkpoint's folder, where there is one; return it by its file."""
    head = value_head_of(network)
    if head is None:
        return {}
    tensors.save_file(head.state_dict(), folder / FILE)
    return {FILE: head.state_dict()}


def load_value_head(network: nn.Module, folder: Path) -> None:
    """Take the head's weights from a checkpoint's folder, in place."""
    head = value_head_of(network)
    if head is None:
        return
    with torch.no_grad():
        for name, weight in tensors.load_file(folder / FILE).items():
            head.get_parameter(name).copy_(weight)
