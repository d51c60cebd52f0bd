"""A likelihood for each group of columns of one kind."""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from gpvae.models.likelihoods.base import Likelihood, Params, RealLikelihood
from gpvae.models.likelihoods.sampling import Random


class MixedLikelihood(Likelihood):
    """Groups of features, each with a likelihood of its own; their inputs and outputs are concatenated.

    Its parameters are a tuple, an entry for each group.
    """

    order: Tensor

    def __init__(self, parts: Sequence[tuple[Likelihood, Sequence[int]]]):
        super().__init__()
        self.parts = nn.ModuleList([part for part, _ in parts])
        self.features = sum(len(features) for _, features in parts)
        self.inputs, self.outputs = sum(part.inputs for part, _ in parts), sum(part.outputs for part, _ in parts)
        columns = torch.tensor([column for _, features in parts for column in features])
        if not torch.equal(columns.sort().values, torch.arange(self.features)):
            raise ValueError(f"every feature needs exactly one likelihood, got those of {columns.tolist()}")
        self.register_buffer("order", columns.argsort(), persistent=False)
        for i, (_, features) in enumerate(parts):
            self.register_buffer(f"features_{i}", torch.tensor(list(features)), persistent=False)

    @property
    def widest(self) -> int:
        return sum(part.widest for part, _ in self.groups())

    def groups(self) -> list[tuple[Likelihood, Tensor]]:
        return [(cast(Likelihood, part), self.get_buffer(f"features_{i}")) for i, part in enumerate(self.parts)]

    def split(self, params: Params) -> tuple[Params, ...]:
        return params

    def numeric_columns(self) -> Tensor:
        return torch.isin(torch.arange(self.features), self.real_columns().cpu())

    def embed(self, values: Tensor, observed: Tensor) -> Tensor:
        return torch.cat([part.embed(values[..., f], observed[..., f]) for part, f in self.groups()], dim=-1)

    def unpack(self, decoded: Tensor) -> Params:
        parts = [part for part, _ in self.groups()]
        pieces = decoded.split([part.outputs for part in parts], dim=-1)
        return tuple(part.unpack(piece) for part, piece in zip(parts, pieces, strict=True))

    def log_prob(self, params: Params, values: Tensor) -> Tensor:
        return self._join([part.log_prob(own, values[..., f]) for part, f, own in self._zip(params)])

    def mean(self, params: Params) -> Tensor:
        return self._join([part.mean(own) for part, _, own in self._zip(params)])

    def variance(self, params: Params) -> Tensor:
        return self._join([part.variance(own) for part, _, own in self._zip(params)])

    def sample(self, params: Params, random: Random) -> Tensor:
        return self._join([part.sample(own, random) for part, _, own in self._zip(params)])

    def shift(self, params: Params, location: Tensor, log_scale: Tensor | None = None) -> Params:
        def move(part: RealLikelihood, own: Params, at: slice) -> Params:
            return part.shift(own, location[..., at], None if log_scale is None else log_scale[..., at])

        return self._map_real(params, move)

    def calibrate(self, params: Params, factor: Tensor) -> Params:
        return self._map_real(params, lambda part, own, at: part.calibrate(own, factor[..., at]))

    def _map_real(self, params: Params, change: Callable[[RealLikelihood, Params, slice], Params]) -> Params:
        """Change the parameters of the real groups; `change` also gets their place among `real_columns`."""
        changed, first = list[Params](), 0
        for part, features, own in self._zip(params):
            if isinstance(part, RealLikelihood):
                own = change(part, own, slice(first, first + len(features)))
                first += len(features)
            changed.append(own)
        return tuple(changed)

    def init_from_data(self, values: Tensor, observed: Tensor) -> None:
        for part, features in self.groups():
            part.init_from_data(values[:, features], observed[:, features])

    def _zip(self, params: Params) -> Iterator[tuple[Likelihood, Tensor, Params]]:
        return ((part, features, own) for (part, features), own in zip(self.groups(), params, strict=True))

    def _join(self, pieces: list[Tensor]) -> Tensor:
        return torch.cat(pieces, dim=-1)[..., self.order]
