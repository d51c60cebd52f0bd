"""What a `GPFactor` found in its data: series that columns share, periods, trends, relations; as data and in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any

import numpy as np
import torch

from gpvae.data.durations import in_words, rhythm
from gpvae.data.panel import Floats
from gpvae.data.schema import Schema
from gpvae.gp.state_space import Kind
from gpvae.models.factor import Extent, FactorModel

LEAST = 0.02  # of a column's variance: what is less is not worth a word
ALIKE = 0.02  # relative difference of periods that count as one
MOST_TIMES = 6.5  # as long as its overtone: a week has days of its own
NAMED = 3  # columns that a sentence lists
FINE = 0.003  # of a column's deviation: as fine as the constant of a relation is written

Blocks = Sequence[tuple[tuple[int, ...], FactorModel]]  # columns with a model of their own


@dataclass(frozen=True)
class SharedSeries:
    """A latent series of several columns. Times are in the units of the data's times: seconds, if those are dates."""

    kind: Kind
    length: float  # ℓ: the correlation falls like exp(-τ/ℓ)
    period: float | None  # of an oscillator
    block: int  # wide tables are cut into blocks of columns, each with series of its own
    rhythm: str | None  # what kind of pattern it is: "daily", "37 hours"
    words: str  # what it is, in full


@dataclass(frozen=True)
class Pattern:
    """A period of the data."""

    period: float  # in the units of the data's times
    name: str | None  # "daily"
    words: str  # "24 hours"
    blocks: int  # in how many blocks of columns
    overtone: bool  # it comes with the shape of a longer one, an integer times as long


@dataclass(frozen=True)
class Relation:
    """A column that others determine: constant + Σ weight × column."""

    column: Any
    constant: float
    weights: Mapping[Any, float]
    equation: str


@dataclass(frozen=True)
class Findings:
    """What there is in the data, the latent series that matter most first."""

    columns: tuple[Any, ...]
    latents: tuple[SharedSeries, ...]
    shares: Floats  # (latent + 2, column) of its variance: by latent, by its own process, noise; NaN if it is constant
    patterns: tuple[Pattern, ...]
    trends: tuple[Any, ...]  # columns
    relations: tuple[Relation, ...]

    @classmethod
    def of(cls, blocks: Blocks, schema: Schema, extent: Extent) -> "Findings":
        shares = _shares(blocks, extent, len(schema.columns))
        order = _by_importance(shares)
        shared = [each for i, (_, model) in enumerate(blocks) for each in _shared(model, i, schema)]
        latents = tuple(shared[k] for k in order)
        shares = np.concatenate([shares[order], shares[-2:]])
        return cls(
            columns=schema.columns,
            latents=latents,
            shares=shares,
            patterns=_patterns(
                [each for each, share in zip(latents, shares[:-2], strict=True) if _shows(share)], schema
            ),
            trends=tuple(schema.columns[columns[d]] for columns, model in blocks for d in model.trends(extent, LEAST)),
            relations=tuple(each for columns, model in blocks for each in _relations(columns, model, schema)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Short ones of the latent series: "latent 1, daily"."""
        numbered = enumerate(self.latents, 1)
        return tuple(f"latent {i}, {each.rhythm}" if each.rhythm else f"latent {i}" for i, each in numbered)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Name and value, for reports."""
        periods = [f"{each.words} ({each.name})" if each.name else each.words for each in self.patterns]
        blocks = len({each.block for each in self.latents})
        return [
            ("shared latent series", f"{len(self.latents)}"),
            *([("periods", ", ".join(periods))] if periods else []),
            *([("blocks of columns", f"{blocks}")] if blocks > 1 else []),
        ]

    @property
    def summary(self) -> str:
        """What the latent series are."""
        series = f"a weighted sum of {len(self.latents)} latent series, " if self.latents else ""
        each = "Each column" if len(self.columns) > 1 else "The column"
        return f"{each} is {series}a process of its own, and noise. {self.sentence}"

    @property
    def sentence(self) -> str:
        """In one line, what was found."""
        shares = zip(self.latents, self.shares[:-2], strict=True)
        shared = sum(each.period is None and np.sum(share >= LEAST) > 1 for each, share in shares)
        found = [*_rhythms(self.patterns), *([f"{shared} series that columns share"] if shared else [])]
        nothing = "no pattern that columns share" if len(self.columns) > 1 else "no pattern"
        lead = found or [nothing]
        rest = [f"a trend in {_listed(self.trends)}"] if self.trends else []
        rest += _relations_in_words(self.relations)
        return f"Found: {'; '.join([*lead, *rest])}." if found or rest else f"Found {nothing}."

    @property
    def conclusion(self) -> str:
        """What the shares mean for filling gaps."""
        known = self.shares[:, ~np.isnan(self.shares[-1])]
        if not known.size:
            return "No column varies."
        shared, own, noise = known[:-2].sum(0).mean(), known[-2].mean(), known[-1].mean()
        parts = (f"{100 * share:.0f} %" for share in (shared, own, noise))
        split = "{} of a column's variance is shared, {} is its own and {} is noise".format(*parts)
        return f"{self._largest()}On average {split}: {_advice(shared, own, noise)}."

    def _largest(self) -> str:
        if not self.latents:
            return ""
        k, j = np.unravel_index(np.nanargmax(self.shares[:-2]), self.shares[:-2].shape)
        share = f"{100 * self.shares[k, j]:.0f} % of {self.columns[j]}'s variance"
        return f"{share} goes with latent {k + 1} ({self.latents[k].words}). "


def _advice(shared: float, own: float, noise: float) -> str:
    if shared >= max(own, noise):
        return "gaps are filled mostly by what columns share"
    if own >= noise:
        return "gaps are filled mostly from the column's own values around them"
    return "most of it can be predicted neither from other columns nor from other times"


def latent_order(blocks: Blocks, extent: Extent, columns: int) -> list[int]:
    """The latent series of all blocks, those that matter most first."""
    return _by_importance(_shares(blocks, extent, columns))


def _shares(blocks: Blocks, extent: Extent, columns: int) -> Floats:
    """In the order of the blocks. (latent + 2, column)"""
    latents = sum(len(model.shared) for _, model in blocks)
    shares, first = np.full((latents + 2, columns), np.nan), 0
    for chosen, model in blocks:
        latent, own, noise = (each.numpy() for each in model.shares(extent))
        shares[:-2, chosen], last = 0, first + len(model.shared)
        shares[first:last, chosen] = latent.T
        shares[-2:, chosen] = own, noise
        first = last
    return shares


def _by_importance(shares: Floats) -> list[int]:
    return np.argsort(-np.nansum(shares[:-2] ** 2, axis=1), kind="stable").tolist()


def _shows(share: Floats) -> bool:
    return bool((share >= LEAST).any())


def _shared(model: FactorModel, block: int, schema: Schema) -> list[SharedSeries]:
    unit, shared = schema.time_unit, len(model.shared)
    numbers = zip(model.shared, model.length[:shared].tolist(), model.frequency[:shared].tolist(), strict=True)
    return [
        _series(kind, unit * length, unit * 2 * pi / w if w else None, block, schema) for kind, length, w in numbers
    ]


def _series(kind: Kind, length: float, period: float | None, block: int, schema: Schema) -> SharedSeries:
    if period is None:
        half = in_words(length * log(2), schema.clock, schema.time_unit)
        return SharedSeries(kind, length, None, block, None, f"its correlation halves in {half}")
    name, duration = rhythm(period, schema.clock), in_words(period, schema.clock, schema.time_unit)
    words = f"{_article(name)} pattern" if name else f"a pattern with a period of {duration}"
    return SharedSeries(kind, length, period, block, name or duration, words)


def _patterns(latents: Sequence[SharedSeries], schema: Schema) -> tuple[Pattern, ...]:
    """Periods whose waves last for a period at least, each once, the longest first."""
    waves = [(each.period, each.block) for each in latents if each.period and each.length >= each.period]
    groups: list[list[tuple[float, int]]] = []
    for period, block in sorted(waves, reverse=True):
        if groups and groups[-1][-1][0] / period - 1 < ALIKE:
            groups[-1].append((period, block))
        else:
            groups.append([(period, block)])
    found: list[Pattern] = []
    for group in groups:
        found.append(_pattern(group, [each.period for each in found], schema))
    return tuple(found)


def _pattern(waves: list[tuple[float, int]], longer: list[float], schema: Schema) -> Pattern:
    period = float(np.median([period for period, _ in waves]))
    name, words = rhythm(period, schema.clock), in_words(period, schema.clock, schema.time_unit)
    times = np.array(longer) / period
    overtone = bool((abs(times / np.rint(times) - 1) < ALIKE)[times < MOST_TIMES].any()) and not name
    return Pattern(period, name, words, len({block for _, block in waves}), overtone)


def _relations(columns: tuple[int, ...], model: FactorModel, schema: Schema) -> list[Relation]:
    weights, offset = model.relations.weights.numpy(), model.relations.offset.numpy()
    scale, shift = (each[list(columns)] for each in (schema.scaling.scale, schema.scaling.shift))
    found = []
    for d in torch.nonzero(model.relations.derived).flatten().tolist():
        used = np.flatnonzero(weights[d])
        slopes = weights[d, used] * scale[d] / scale[used]
        constant = float(shift[d] + scale[d] * offset[d] - slopes @ shift[used])
        by_name = {schema.columns[columns[j]]: float(slope) for j, slope in zip(used, slopes, strict=True)}
        name = schema.columns[columns[d]]
        found.append(Relation(name, constant, by_name, _equation(name, constant, by_name, FINE * float(scale[d]))))
    return found


def _equation(column: Any, constant: float, weights: Mapping[Any, float], fine: float) -> str:
    """`fine`: what is smaller makes no difference to the constant."""
    digits = max(0, int(np.ceil(-np.log10(fine))))
    written = f"{abs(constant):.{digits}f}"
    terms = [(constant, written.rstrip("0").rstrip(".") if digits else written)] if abs(constant) > fine else []
    terms += [(weight, _term(abs(weight), name)) for name, weight in weights.items()]
    signs = ["−" if number < 0 else "" for number, _ in terms[:1]]
    signs += [" − " if number < 0 else " + " for number, _ in terms[1:]]
    return f"{column} = " + "".join(sign + term for sign, (_, term) in zip(signs, terms, strict=True))


def _term(weight: float, name: Any) -> str:
    return f"{name}" if abs(weight - 1) < 5e-4 else f"{weight:.4g} × {name}"


def _rhythms(patterns: Sequence[Pattern]) -> list[str]:
    """Such as: a daily and a weekly pattern; periods of 37 hours and 5 days."""
    names = [_article(each.name) for each in patterns[::-1] if each.name]
    others = [each.words for each in patterns[::-1] if not each.name and not each.overtone]
    rhythms = [f"{_joined(names)} pattern"] if names else []
    return rhythms + ([f"{'a period' if len(others) == 1 else 'periods'} of {_joined(others)}"] if others else [])


def _relations_in_words(relations: Sequence[Relation]) -> list[str]:
    words = [f"{each.column} is determined by {_listed(tuple(each.weights))}" for each in relations[:NAMED]]
    left = len(relations) - NAMED
    return words + (
        [f"{left} more {'column is' if left == 1 else 'columns are'} determined by others"] if left > 0 else []
    )


def _article(name: str) -> str:
    return f"{'an' if name == 'hourly' else 'a'} {name}"


def _listed(columns: Sequence[Any]) -> str:
    """The names of columns, of the first ones if there are many."""
    if len(columns) <= NAMED + 1:
        return _joined([str(name) for name in columns])
    return _joined([*map(str, columns[:NAMED]), f"{len(columns) - NAMED} others"])


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
