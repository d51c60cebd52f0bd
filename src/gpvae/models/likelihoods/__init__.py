"""Likelihoods of observed values.

A new one is a file here and an entry below: its setting among the exports, if real columns may follow it, or its kind
of column in `KINDS`.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from gpvae.models.likelihoods.base import Likelihood, LikelihoodSpec, Params, RealLikelihood, RealParams
from gpvae.models.likelihoods.bernoulli import Bernoulli, BernoulliLikelihood, SelectiveBernoulliLikelihood
from gpvae.models.likelihoods.categorical import CategoricalLikelihood
from gpvae.models.likelihoods.gaussian import Gaussian, GaussianLikelihood
from gpvae.models.likelihoods.mixed import MixedLikelihood
from gpvae.models.likelihoods.ordinal import OrdinalLikelihood
from gpvae.models.likelihoods.poisson import PoissonLikelihood
from gpvae.models.likelihoods.student import Student, StudentLikelihood

__all__ = [
    "KINDS",
    "Bernoulli",
    "BernoulliLikelihood",
    "CategoricalLikelihood",
    "Gaussian",
    "GaussianLikelihood",
    "Likelihood",
    "LikelihoodSpec",
    "MixedLikelihood",
    "OrdinalLikelihood",
    "Params",
    "PoissonLikelihood",
    "RealLikelihood",
    "RealParams",
    "SelectiveBernoulliLikelihood",
    "Student",
    "StudentLikelihood",
    "likelihood_for",
]

# What columns of the other kinds follow, from the number of columns and of their levels. A positive value is Gaussian
# in its logarithm, which is what a scaled one is; with heavier tails there, it would have no mean.
KINDS: Mapping[str, Callable[[int, int], Likelihood]] = MappingProxyType(
    {
        "positive": lambda features, levels: GaussianLikelihood(features),
        "count": lambda features, levels: PoissonLikelihood(features),
        "binary": lambda features, levels: BernoulliLikelihood(features),
        "ordinal": OrdinalLikelihood,
        "categorical": CategoricalLikelihood,
    }
)


def likelihood_for(kinds: Sequence[str], levels: Sequence[int], real: LikelihoodSpec) -> Likelihood:
    """The likelihood of columns of these kinds, classes with so many levels; real ones follow `real`."""
    if set(kinds) == {"real"}:
        return real.build(len(kinds))
    if not real.mixes:
        raise ValueError(f"a {type(real).__name__} likelihood is for all columns: they cannot have kinds of their own")
    groups: dict[tuple[str, int], list[int]] = {}
    for column, (kind, count) in enumerate(zip(kinds, levels, strict=True)):
        groups.setdefault((kind, count), []).append(column)
    return MixedLikelihood(
        [
            (real.build(len(columns)) if kind == "real" else KINDS[kind](len(columns), count), columns)
            for (kind, count), columns in groups.items()
        ]
    )
