"""Rows as they arrive: each is filled, with intervals, from itself and the rows before it, at constant cost."""

import copy
import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from gpvae.data.atomic import atomic_write
from gpvae.data.codec import to_json
from gpvae.data.panel import DataError, Floats
from gpvae.data.schema import Schema
from gpvae.data.times import Moment, parse_moment, time_after, time_between, unit_steps
from gpvae.gp.state_space import State, Step, stationary
from gpvae.imputers.draws import require_level
from gpvae.models.factor import FactorModel

FORMAT = 1
Block = tuple[tuple[int, ...], FactorModel]  # columns, and their model


class FilledRow(NamedTuple):
    """Of each column. Where it was observed, the deviation is 0 and the interval is the value."""

    values: Floats  # (column,)
    std: Floats  # (column,)
    lower: Floats  # (column,)
    upper: Floats  # (column,)


class Stream:
    """The rows of one series as they arrive, each filled from itself and the rows before it.

        stream = model.stream()
        filled = stream.step({"temperature": 21.3, "wind": None}, time="2024-03-01T06:00")

    Values and deviations are those of `impute(…, causal=True)` on all rows so far. Interval ends are exact quantiles:
    those of a normal distribution, unbent. (`impute` reads its intervals from draws, which a stream has no use for.) A
    step costs the same however many rows came before; nothing is kept of them but the state of the filter.

    A row without values is a forecast; `stream.copy().step({})` leaves the stream itself as it is.
    """

    def __init__(self, schema: Schema, blocks: Sequence[Block], level: float = 0.9):
        require_level(level)
        self.schema, self.blocks, self.level = schema, [_BlockFilter(*block) for block in blocks], level
        self.rows = 0  # so far
        self.time: Moment | None = None  # of the last row
        self.states: list[State] | None = None  # of each block, given all rows so far

    def step(self, row: Mapping[Any, Any] | Sequence[Any] | Floats, time: Any = None) -> FilledRow:
        """Fill the next row.

        row: values by name of the column, or of all columns in order; None, NaN or, by name, absent is missing.
        time: by default one time step after the row before, the median one of the data that the model was fitted to.
        """
        values, (moment, delta) = self._values(row), self._moment(time)
        with np.errstate(over="ignore"):  # refused below
            scaled = self.schema.scaling.apply(values[None])[0]
        befores = [None] * len(self.blocks) if self.states is None else self.states
        states = [
            block.update(before, delta, scaled[block.columns])
            for block, before in zip(self.blocks, befores, strict=True)
        ]
        self._require_finite(states, values, scaled)
        filled = self._filled(values, states)
        self.states, self.time, self.rows = states, moment, self.rows + 1
        return filled

    def copy(self) -> Self:
        """Another stream that goes on from here."""
        return copy.copy(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the state to a file, to go on by `model.stream(resume=path)`."""
        save_streams({None: self}, path, overwrite=overwrite)

    def _values(self, row: Mapping[Any, Any] | Sequence[Any] | Floats) -> Floats:
        columns = self.schema.columns
        if isinstance(row, Mapping):
            if unknown := [name for name in row if name not in columns]:
                known = ", ".join(map(str, columns))
                raise DataError(f"the row has a column {unknown[0]!r}; the model was fitted on the columns {known}")
            row = [row.get(name) for name in columns]
        if len(row) != len(columns):
            raise DataError(f"the model was fitted on {len(columns)} columns, the row has {len(row)} values")
        values = np.array([_number(value, name) for value, name in zip(row, columns, strict=True)])
        if np.isinf(values).any():
            raise DataError(f"infinite value in column {columns[np.isinf(values).argmax()]!r}")
        return values

    def _moment(self, time: Any) -> tuple[Moment | None, float]:
        """When the row is, and how many time units after the last one."""
        unit = self.schema.time_unit
        if time is None:
            return None if self.time is None else time_after(self.time, unit), 1.0
        moment = parse_moment(time, self.schema.clock)
        if not self.rows:
            return moment, 1.0
        if self.time is None:
            raise DataError("the rows before came without times, so this one cannot have one")
        span = time_between(self.time, moment)
        if span <= 0:
            raise DataError(f"times must increase, but {moment} follows {self.time}")
        return moment, float(unit_steps(np.array(span / unit)))

    def _filled(self, values: Floats, states: list[State]) -> FilledRow:
        scaling, missing = self.schema.scaling, np.isnan(values)
        centre = np.where(missing, scaling.shift, values)  # the value of constant columns, NaN of unknown ones
        filled = FilledRow(centre, np.where(np.isnan(centre), np.nan, 0.0), centre.copy(), centre.copy())
        score = NormalDist().inv_cdf((1 + self.level) / 2)
        for block, state in zip(self.blocks, states, strict=True):
            gaps = np.flatnonzero(missing[block.columns])
            if len(gaps):
                columns, (mean, std, ends) = block.columns[gaps], block.predict(state, gaps, score)
                filled.std[columns] = std.numpy() * scaling.scale[columns]
                for part, scaled in ((filled.values, mean), (filled.lower, ends[0]), (filled.upper, ends[1])):
                    part[columns] = scaling.undo(scaled.numpy(), columns)
        return filled

    def _require_finite(self, states: list[State], values: Floats, scaled: Floats) -> None:
        if not all(state.mean.isfinite().all() for state in states):
            j = np.nanargmax(np.abs(scaled))
            raise DataError(f"the value of column {self.schema.columns[j]!r} is too large for the model: {values[j]:g}")

    @cached_property
    def fingerprint(self) -> str:
        """Of the model."""
        digest = hashlib.sha256(json.dumps(to_json(self.schema)).encode())
        for block in self.blocks:
            tensors = {name: value.contiguous() for name, value in block.model.tensors().items()}
            layout = json.dumps([block.columns.tolist(), to_json(block.model.composition)])
            digest.update(layout.encode() + save_tensors(tensors))
        return digest.hexdigest()


class _BlockFilter:
    """The Kalman filter of one block, one row at a time."""

    def __init__(self, columns: Sequence[int], model: FactorModel):
        self.columns, self.model, self.space = np.array(columns), model, model.space
        self.unit_step = self.space.step(torch.ones(1, dtype=torch.float64))

    def update(self, state: State | None, delta: float, scaled: Floats) -> State:
        """From the state given all earlier rows, if there are any, to that given this one too."""
        before = stationary(self.space, 1) if state is None else state.moved(self._step(delta))
        values = torch.from_numpy(scaled).unsqueeze(0)
        observed = ~values.isnan() & ~self.model.relations.broken(values)
        warped = self.model.warp(values.masked_fill(~observed, 0)).unsqueeze(-1)
        after, _ = self.space.measurement.update(before, warped, observed)
        return after

    def _step(self, delta: float) -> Step:
        return self.unit_step if delta == 1 else self.space.step(torch.tensor([delta], dtype=torch.float64))

    def predict(self, state: State, gaps: NDArray[np.int64], score: float) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, deviation (gap,) and interval ends (2, gap) of measurements, noise included, scaled."""
        at = torch.from_numpy(gaps)
        mean, variance = (x.flatten() for x in state.moments(self.space.loadings[at]))
        variance, warp = variance + self.space.noise[at], self.model.warp.of(at)
        spread = score * variance.sqrt()
        return *warp.moments(mean, variance), warp.inverse(torch.stack([mean - spread, mean + spread]))


def _number(value: Any, name: Any) -> float:
    try:
        return np.nan if value is None else float(value)
    except (TypeError, ValueError):
        raise DataError(f"column {name!r} must be numeric, got {value!r}") from None


def save_streams(streams: Mapping[str | None, Stream], path: str | Path, *, overwrite: bool = False) -> None:
    """Write the states of streams of one model, by the ids of their series, to a file."""
    series, tensors = list[dict[str, Any]](), dict[str, Tensor]()
    for i, (name, stream) in enumerate(streams.items()):
        time = stream.time.isoformat() if isinstance(stream.time, dt.datetime) else stream.time
        series.append({"id": name, "rows": stream.rows, "time": time})
        for j, state in enumerate(stream.states or []):
            tensors |= {f"{i}.{j}.{part}": value.contiguous() for part, value in state._asdict().items()}
    model = next((stream.fingerprint for stream in streams.values()), None)
    description = json.dumps({"format": FORMAT, "model": model, "series": series})
    with atomic_write(Path(path), force=overwrite) as partial:
        partial.write_bytes(save_tensors(tensors, {"gpvae": description}))


def load_streams(fresh: Stream, path: str | Path) -> dict[str | None, Stream]:
    """The streams whose states `save_streams` wrote; `fresh` is one of the same model, before its first row."""
    if not Path(path).is_file():
        raise DataError(f"there is no file {path}")
    try:
        with safe_open(path, "pt") as opened:
            description = json.loads(opened.metadata()["gpvae"])
        tensors = load_tensors(Path(path).read_bytes())
        if description["format"] != FORMAT:
            raise DataError(f"{path} has the format {description['format']!r}, this version reads {FORMAT}")
        if description["series"] and description["model"] != fresh.fingerprint:
            raise DataError(f"{path} was saved by a stream of another model, so this one cannot go on from it")
        return {each["id"]: _restored(fresh, i, each, tensors) for i, each in enumerate(description["series"])}
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not the state of a stream: {error}") from None


def load_stream(fresh: Stream, path: str | Path) -> Stream:
    """The stream that `Stream.save` wrote."""
    streams = load_streams(fresh, path)
    if [*streams] != [None]:
        raise DataError(f"{path} holds several series, which only `gpvae stream --state` goes on with")
    return streams[None]


def _restored(fresh: Stream, i: int, series: dict[str, Any], tensors: dict[str, Tensor]) -> Stream:
    stream = fresh.copy()
    stream.rows = series["rows"]
    stream.time = None if series["time"] is None else parse_moment(series["time"], fresh.schema.clock)
    if stream.rows:
        names = [[f"{i}.{j}.{part}" for part in State._fields] for j in range(len(fresh.blocks))]
        stream.states = [State(*(tensors[name] for name in parts)) for parts in names]
    return stream
