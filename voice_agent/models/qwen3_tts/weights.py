"""Where weights come from: a checkpoint's tensors by published name, or random ones of the shape asked for.

A model is built by asking a `Source` for each tensor with the shape it must have; so shapes stand in one place, a
wrong checkpoint fails with the tensor's name, and a random model needs no file. Knows no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from voice_agent.errors import WeightsError

CALM = 0.75  # of a convolution's weights: at 1.0 a few stacked Snakes are chaotic


class Source(Protocol):
    """Gives tensors by name."""

    def get(self, name: str, *shape: int) -> Tensor:
        """The tensor `name` of exactly this shape, on its device and in its dtype; raises WeightsError."""
        ...

    def under(self, prefix: str) -> "Source":
        """The same source with `prefix.` before every name."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """Tensors of a state dict, moved and cast as they are asked for."""

    tensors: Mapping[str, Tensor]
    device: torch.device
    dtype: torch.dtype
    prefix: str = ""

    def get(self, name: str, *shape: int) -> Tensor:
        """The tensor; raises WeightsError when it is missing or has another shape."""
        full = self.prefix + name
        if full not in self.tensors:
            raise WeightsError(f"the checkpoint has no tensor {full}")
        tensor = self.tensors[full]
        if tuple(tensor.shape) != shape:
            raise WeightsError(f"{full} has shape {tuple(tensor.shape)}, the configuration asks for {shape}")
        return tensor.to(self.device, self.dtype)

    def under(self, prefix: str) -> "Checkpoint":
        """The same checkpoint with `prefix.` before every name."""
        return replace(self, prefix=f"{self.prefix}{prefix}.")


@dataclass(frozen=True)
class RandomWeights:
    """Random tensors, made where they will live; the same generator state gives the same model.

    Matrices get variance 1/inputs so that activations keep their size through any depth; norms are ones.
    """

    device: torch.device
    dtype: torch.dtype
    generator: torch.Generator
    prefix: str = ""

    def get(self, name: str, *shape: int) -> Tensor:
        """A new tensor of this shape; what kind it is is told from the published name."""
        full = self.prefix + name
        if "norm" in name and name.endswith("weight"):
            return torch.ones(shape, device=self.device, dtype=self.dtype)
        if name.endswith("cluster_usage"):
            return torch.ones(shape, device=self.device, dtype=self.dtype)
        if name.endswith(("scale", "gamma")):  # the published start values would hide a wrong branch
            return torch.full(shape, 0.3, device=self.device, dtype=self.dtype)
        tensor = torch.empty(shape, device=self.device, dtype=self.dtype)
        return tensor.normal_(0.0, spread(full, shape), generator=self.generator)

    def under(self, prefix: str) -> "RandomWeights":
        """The same source with `prefix.` before every name."""
        return replace(self, prefix=f"{self.prefix}{prefix}.")


def spread(name: str, shape: tuple[int, ...]) -> float:
    """A standard deviation that keeps activations in size, and a deep codec from turning rounding into noise."""
    if len(shape) == 1 or "embed" in name:
        return 0.1
    inputs = torch.Size(shape[1:]).numel()
    return (CALM if len(shape) == 3 else 1.0) * inputs**-0.5


def random_weights(seed: int, device: torch.device, dtype: torch.dtype) -> RandomWeights:
    """A random source with a generator of its own."""
    return RandomWeights(device, dtype, torch.Generator(device).manual_seed(seed))
