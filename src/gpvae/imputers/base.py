"""The contract of every imputer: fit to a panel, fill the gaps of one, save, load."""

import hashlib
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpvae.data.codec import from_json, to_json
from gpvae.data.gaps import Duration, GapSelection
from gpvae.data.known import with_known
from gpvae.data.panel import Bools, DataError, Floats, FrameSource, Panel
from gpvae.data.scaling import CLASSES, DISCRETE, class_columns
from gpvae.data.schema import Schema
from gpvae.imputers.draws import ConformalIntervals, Draws, require_memory
from gpvae.imputers.held_out import HeldOutCells
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.latent_view import LatentView
from gpvae.imputers.model_folder import read_model, write_model
from gpvae.imputers.registry import FILL_CATEGORIES
from gpvae.imputers.transformer import Transformer
from gpvae.training.config import TrainingError
from gpvae.training.state import Parts

HELD_OUT = "held_out"  # among the tensors
# What a description that makes no model may raise.
UNREADABLE = (AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class Prediction(NamedTuple):
    """Predictions for the missing cells, in row order."""

    mean: Floats  # (cell,) in the data's units
    std: Floats | None = None  # (cell,)
    draws: NDArray[np.float32] | None = None  # (cell, sample) in the model's units
    conformal: ConformalIntervals | None = None
    stratified: bool = True  # how the draws of a cell are spread: see `Draws`


def _naming_columns(fit: Callable[..., Any]) -> Callable[..., Any]:
    """`fit` with the arguments `id` and `time`, the columns of a data frame that hold series and times."""

    @wraps(fit)
    def named(
        self: "Imputer", data: Any, y: None = None, *, id: str | None = None, time: str | None = None, **paths: Any
    ) -> Any:
        named_data = data
        if id is not None or time is not None:
            if isinstance(data, Panel | np.ndarray | list | tuple):
                raise DataError("id and time name columns of a data frame; arrays and panels have their series already")
            kinds = getattr(self, "kinds", None)
            named_data = Panel.from_frame(data, id=id, time=time, categories=class_columns(kinds))
        fitted = fit(self, named_data, y, **paths)
        self._remember_features(data)
        return fitted

    own = list(signature(fit).parameters.values())
    names = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=str | None) for name in ("id", "time")]
    place = len(own) - (own[-1].kind is Parameter.VAR_KEYWORD)
    named.__signature__ = signature(fit).replace(parameters=[*own[:place], *names, *own[place:]])  # type: ignore
    return named


class Imputer(Transformer):
    """Anything that fills gaps. The data is what `Panel.of` takes: a panel, arrays, or a data frame.

        filled = imputer.fit(data).impute(data)

    `schema_` is what it knows of the data it was fitted on, `history_` how training went, an entry for each epoch,
    `seconds_` how long it took, which is not saved.
    """

    gives_distributions: ClassVar[bool] = False  # or single values
    known: tuple[str, ...] = ()  # columns that are always known: to learn from, not to fill; some imputers can be told
    schema_: Schema
    history_: list[Parts]
    seconds_: float | None = None
    held_out_: HeldOutCells | None = None
    left_: tuple[str, ...] = ()  # columns of text that `fit` has warned about, which are not filled

    @abstractmethod
    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        """Learn from `data`. Of a data frame, `id` and `time` may name the columns of series and times.

        checkpoint: a file that keeps the run, so that an interrupted fit, called again, goes on where it stopped.
        logs: a folder for TensorBoard.
        """

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the `fit` of every imputer take the names of a frame's id and time columns."""
        super().__init_subclass__(**options)
        if "fit" in vars(cls):
            cls.fit = _naming_columns(vars(cls)["fit"])  # type: ignore[method-assign]

    def _read(self, data: Any) -> Panel:
        """Data of any sort as a panel, before fitting; columns of text only for methods that can fill them."""
        panel = with_known(Panel.of(data), self.known)
        self.left_ = (*panel.labels, *([] if isinstance(data, Panel) else panel.unfilled()))
        if self.left_:
            names = ", ".join(repr(name) for name in self.left_)
            advice = f"{', '.join(FILL_CATEGORIES[:-1])} and {FILL_CATEGORIES[-1]} fill categories"
            warnings.warn(
                f"{self.name} fills only numbers and leaves {names} unchanged; {advice}{_about_numbers(panel)}",
                stacklevel=4,
            )
        return panel.select([name for name in panel.columns if name not in panel.labels])

    def _warn_of_unfilled(self, data: Any, panel: Panel) -> None:
        """Of columns of a frame that have gaps and that `fit` has not named."""
        left = [] if isinstance(data, Panel) else [name for name in panel.unfilled() if name not in self.left_]
        if left:
            names, advice = ", ".join(map(repr, left)), "declare text and booleans as categories by kinds"
            warnings.warn(f"the gaps of {names} are not filled; {advice}{_about_numbers(panel)}", stacklevel=3)

    def _filled_columns(self, given: Panel) -> Panel:
        """Those of the model."""
        return self._select(given.select([name for name in given.columns if name not in self.left_]))

    @abstractmethod
    def _new_schema(self, panel: Panel) -> Schema:
        """What there is to know of the data, before fitting."""

    @abstractmethod
    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        """Predict the cells `missing` (row, feature) of a panel with the columns fitted on."""

    def _fill_causally(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        """The same, each row from itself and the rows before it."""
        from gpvae.imputers import registry

        raise DataError(f"{self.name} {registry.NOT_CAUSAL}")

    def impute(
        self,
        data: Any,
        *,
        samples: int = 100,
        seed: int = 0,
        max_gap: Duration | None = None,
        gaps: GapSelection | None = None,
        causal: bool = False,
    ) -> Imputation:
        """Fill the gaps of `data`: the series fitted to, or others with the same columns, of any length.

        samples: how many draws intervals are read from; of no use to methods that give single values.
        max_gap: gaps that are longer stay empty: "6h" or a timedelta where times are dates, else a number.
        gaps: a finer choice of the gaps to fill; `max_gap` is short for GapSelection(max_gap=…).
        causal: fill each row from itself and the rows before it in its series, so that nothing of the future leaks
            into it; what the imputer learned is from the data that it was fitted to. Draws are then joint over columns,
            not over time.
        """
        if samples < 1:
            raise ValueError(f"at least one sample is needed, not {samples}")
        check_is_fitted(self)
        started = time.perf_counter()
        given = with_known(self.schema_.panel(data).with_labels(self.schema_.labels), self.known)
        self._warn_of_unfilled(data, given)
        panel = self._filled_columns(given)
        missing = ~panel.observed & self.schema_.scaling.known
        if max_gap is not None or gaps is not None:
            chosen = GapSelection() if gaps is None else gaps
            chosen = chosen if max_gap is None else replace(chosen, max_gap=max_gap)
            missing &= chosen.wanted(given)[:, self.schema_.column_index(given)]
        if self.gives_distributions:
            require_memory(int(missing.sum()), samples)
        filled = (self._fill_causally if causal else self._fill)(panel, missing, samples, seed)
        return replace(self._imputation(given, missing, filled), seconds=time.perf_counter() - started, imputer=self)

    def held_out(self, panel: Panel) -> Bools | None:
        """Cells of the panel that were held out from training, if it was trained on this panel. (row, feature)"""
        if self.held_out_ is None or not {*self.schema_.columns} <= {*panel.columns}:
            return None
        own = with_known(panel.with_labels(self.schema_.labels).select(self.schema_.columns), self.known)
        if fingerprint(own) != self.held_out_.data:
            return None
        cells = np.zeros(panel.values.shape, dtype=bool)
        cells[:, self.schema_.column_index(panel)] = self.held_out_.cells(len(self.schema_.columns))
        return cells

    def log_likelihood(self, data: Any, truth: Floats, *, samples: int = 100, seed: int = 0) -> Floats:
        """Give log p(true value | observed values) for each missing cell whose true value is given, NaN for the others.

        `truth` and the result are (row, feature) in the layout, the units and, for text, the labels of the data's
        panel. Of counts and classes it is the logarithm of a probability.
        """
        check_is_fitted(self)
        own, labels, scaling = self.schema_.panel(data), self.schema_.labels, self.schema_.scaling
        if truth.shape != own.values.shape:
            raise DataError(f"the truth has shape {truth.shape}, the data {own.values.shape}")
        panel = self._filled_columns(with_known(own.with_labels(labels), self.known))
        answers = own.with_values(truth).with_labels(labels).select(self.schema_.columns).values
        scaled = scaling.apply(answers)
        asked = ~panel.observed & ~np.isnan(answers) & scaling.varies
        possible = asked & np.isfinite(scaled)  # a positive value is not 0, a class is one of those known
        found = self._log_density(panel, np.where(possible, scaled, 0).astype(np.float32), samples, seed)
        found = np.where(possible, found + scaling.log_jacobian(answers), -np.inf)
        density = np.full(truth.shape, np.nan)
        density[:, self.schema_.column_index(own)] = np.where(asked, found, np.nan)
        return density

    def _log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        """Of every cell at the value `scaled`, in the model's units. (row, feature)"""
        raise DataError(f"{self.name} gives single values, not distributions")

    @property
    def name(self) -> str:
        return type(self).__name__

    def describe(self) -> list[str]:
        """What was found in the data, in sentences."""
        return []

    def found_kinds(self, panel: Panel) -> dict[Any, str]:
        """What columns hold that are not just any real numbers, in words, as `fit` will find it. By name."""
        return {}

    def facts(self) -> list[tuple[str, str]]:
        """Name and value of what is worth knowing of the fitted method, for reports."""
        return []

    def latent_view(self) -> LatentView | None:
        """What a report shows of the latent series, if there are any."""
        return None

    @property
    def shows_progress(self) -> bool:
        """Whether fitting shows how far it is."""
        return any(value for name, value in self.get_params().items() if name.endswith("verbose"))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the imputer into a new folder: its numbers as safetensors, the rest as JSON."""
        check_is_fitted(self)
        features = getattr(self, "n_features_in_", len(self.schema_.columns))
        held_out = {} if self.held_out_ is None else {HELD_OUT: torch.from_numpy(self.held_out_.bits)}
        description = {
            "gpvae": version("gpvae"),
            **self.to_json(),
            "resolved": self._resolved(),
            "schema": to_json(self.schema_),
            "history": self.history_,
            "held_out_of": self.held_out_ and self.held_out_.data,
            "features": [features, getattr(self, "feature_names_in_", np.empty(0)).tolist()],
        }
        write_model(Path(folder), description, {**self._tensors(), **held_out}, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> Self:
        """An imputer of this sort that `save` wrote. Anything else is refused, with a reason."""
        imputer = load(folder, device=device)
        if not isinstance(imputer, cls):
            raise DataError(f"{folder} holds a {imputer.name}, not a {cls.__name__}; gpvae.load takes either")
        return imputer

    def to_json(self) -> dict[str, Any]:
        """What it is and how it is set, JSON-ready."""
        return {"imputer": type(self).__name__, "settings": self._settings()}

    def _settings(self) -> dict[str, Any]:
        hints = get_type_hints(type(self))
        return {name: to_json(value, hints[name]) for name, value in self.get_params(deep=False).items()}

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], device: str) -> Self:
        hints, known = get_type_hints(cls), set(cls._get_param_names())
        if unknown := sorted({*settings} - known):
            raise ValueError(f"{cls.__name__} has no setting {', '.join(map(repr, unknown))}")
        return cls(**{name: from_json(hints[name], value) for name, value in settings.items()})

    def _resolved(self) -> Any:
        """Settings that the data decided, JSON-ready."""
        return None

    def _tensors(self) -> dict[str, Tensor]:
        """What was learned."""
        return {}

    def _restore(self, tensors: dict[str, Tensor], resolved: Any) -> None:
        """Take back what `_tensors` and `_resolved` returned; `schema_` is there already."""

    def _select(self, panel: Panel) -> Panel:
        return self.schema_.select(panel, self.name)

    def _imputation(self, given: Panel, missing: Bools, filled: Prediction) -> Imputation:
        """Results for the cells `missing` (row, model's column) in the layout of the panel that was given."""
        scaling, places, width = self.schema_.scaling, self.schema_.column_index(given), len(given.columns)
        cells = np.flatnonzero(missing)
        feature = cells % len(places)
        if not np.array_equal(places, np.arange(width)):
            cells = cells // len(places) * width + places[feature]
        draws = None if filled.draws is None else Draws(filled.draws, feature, scaling, filled.stratified)
        mean, std = filled.mean, filled.std
        if draws is not None and std is not None and scaling.of_kind(*DISCRETE).any():
            mean, std = mean.copy(), std.copy()
            discrete, classes = (scaling.of_kind(*kinds)[feature] for kinds in (DISCRETE, CLASSES))
            mean[discrete] = draws.at(discrete).most_likely()
            std[classes] = draws.at(classes).deviations()
            std[np.isin(feature, [j for j, name in enumerate(self.schema_.columns) if name in given.labels])] = np.nan
        found = Imputation(given, cells, mean, std, draws, filled.conformal, self.name)
        return found if (np.diff(places) > 0).all() else found.sorted()


def _about_numbers(panel: Panel) -> str:
    """Which columns without a type for numbers hold numbers all the same."""
    source = panel.source
    names = [name for name in panel.unfilled() if isinstance(source, FrameSource) and source.holds_numbers(name)]
    return f"; {', '.join(map(repr, names))} hold numbers as objects: convert them to float" if names else ""


def fingerprint(panel: Panel) -> str:
    """Of the numbers in it."""
    digest = hashlib.sha256()
    values = np.where(np.isnan(panel.values), np.nan, panel.values)  # there is more than one NaN
    for array in (values, panel.times, panel.lengths):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def load(folder: str | Path, *, device: str = "auto") -> Imputer:
    """An imputer that `save` wrote, of whatever sort. Anything else is refused, with a reason."""
    description, learned = read_model(Path(folder))
    try:
        imputer = from_description(description, device)
        imputer.schema_ = from_json(Schema, description["schema"])
        imputer.history_ = from_json(list[dict[str, float]], description["history"])
        if "features" in description:
            count, names = description["features"]
            imputer._set_features(int(count), names or None)
        if HELD_OUT in learned:
            imputer.held_out_ = _held_out(learned.pop(HELD_OUT), description["held_out_of"], imputer.schema_)
        imputer._restore(learned, description["resolved"])
    except UNREADABLE as error:
        if isinstance(error, TrainingError):
            raise  # no such device: not the folder's fault
        raise DataError(f"{folder} does not hold a model that this version can read: {_first_line(error)}") from error
    return imputer


def _held_out(bits: Tensor, data: Any, schema: Schema) -> HeldOutCells:
    if bits.dtype != torch.uint8 or bits.shape[1:] != (-(-len(schema.columns) // 8),) or not isinstance(data, str):
        raise ValueError("its held-out cells do not fit its columns")
    return HeldOutCells(bits.numpy(), data)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def from_description(description: dict[str, Any], device: str) -> Imputer:
    """The imputer that `to_json` describes, not fitted yet. Of any sort, so all of ours have to be there."""
    from gpvae.imputers import registry

    registry.import_all()
    sorts = {sort.__name__: sort for sort in _sorts(Imputer)}
    if description["imputer"] not in sorts:
        raise ValueError(f"there is no imputer {description['imputer']!r}")
    return sorts[description["imputer"]]._from_settings(dict(description["settings"]), device)


def _sorts(base: type[Imputer]) -> list[type[Imputer]]:
    return [each for sort in base.__subclasses__() for each in (sort, *_sorts(sort))]
