"""Where model and data meet: fit to a panel, fill its gaps, save and load."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpvae import missingness
from gpvae.batches import Batches, Cut, Piece, Rows, whole_series, windows
from gpvae.distributions import Gaussian
from gpvae.files import require_writable, whole_or_not_at_all
from gpvae.imputation import Draws, Imputation
from gpvae.linalg import LOG_2PI
from gpvae.model import Ingredients, LatentModel, Loss, ModelConfig
from gpvae.panel import Bools, DataError, Floats, Panel
from gpvae.schema import Scaling, Schema
from gpvae.times import Clock
from gpvae.training import (
    Checkpoint,
    TrainingConfig,
    TrainingError,
    compiled,
    epoch_generator,
    fabric_for,
    progress_bar,
    step_generator,
    tensor_cores,
    train,
)

FORMAT = 1
ORDER = 2  # of batches: a checkpoint with another order of them cannot be continued
EPOCHS_AT_LEAST, STEPS_AT_LEAST = 40, 3000  # of training, where the number of epochs is left to us
NUMBERS_AT_ONCE = {"cpu": 2**24, "cuda": 2**26}  # that a layer may make in one go: 64 MB, 256 MB
COMPILE_FROM = 50_000  # steps of training on CUDA with one shape of batch that repay a compiler's quarter of a minute


class GPVAE(BaseEstimator):
    """Fill the gaps of multivariate time series, with uncertainty, by a VAE with a Gaussian-process latent space.

        filled = GPVAE().fit(data).impute(data)

    `data` is a Panel, an array (series, time, feature) or (time, feature), a list of arrays, or a data frame;
    NaN or null = missing.

    model: what the model is; `gpvae.paper` has the paper's own settings.
    epochs: passes over the data; None: 40, or more if the data is small.
    window: series longer than this are trained on in windows of so many steps. They are imputed whole.
    warm_up: share of the epochs over which the weight of the KL rises from near 0 to β.
    validation: share of the observed cells that is kept from training, to choose the best epoch and to set the noise
        level; 0 for none.
    patience: epochs behind the warm-up without a better validation score before training stops; None: a fifth of the
        epochs.
    standardise: scale columns to zero mean and unit deviation for the model (undone in what it returns). Never done
        for a Bernoulli likelihood.
    precision: "32-true" or "bf16-mixed".
    device: "auto", "cpu" or "cuda".
    verbose: show a progress bar.
    """

    def __init__(
        self,
        model: ModelConfig = ModelConfig(),
        *,
        epochs: int | None = None,
        batch_size: int = 16,
        learning_rate: float = 1e-3,
        window: int = 64,
        warm_up: float = 0.25,
        validation: float = 0.1,
        patience: int | None = None,
        standardise: bool = True,
        precision: str = "32-true",
        device: str = "auto",
        seed: int = 0,
        verbose: bool = False,
    ):
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.window = window
        self.warm_up = warm_up
        self.validation = validation
        self.patience = patience
        self.standardise = standardise
        self.precision = precision
        self.device = device
        self.seed = seed
        self.verbose = verbose

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        """Learn from `data`.

        checkpoint: a file that keeps the run, so that an interrupted fit, called again, goes on where it stopped.
        logs: a folder for TensorBoard.
        """
        self._require_sensible_settings()
        panel = Panel.of(data)
        self._require_fitting_values(panel)
        schema = Schema.of(panel, standardise=self.standardise and self.model.likelihood == "gaussian")
        fabric = fabric_for(self.device, self.precision, None if logs is None else Path(logs))
        held_out = self._hold_out(panel, schema)
        rows = schema.rows(panel, panel.observed & ~held_out, fabric.device)
        model = self._new_model(len(panel.columns)).to(fabric.device)
        pieces = windows(panel, self.window)
        judge = _Judge(model, rows, schema.rows(panel, held_out, fabric.device), pieces, self.seed)

        plan = Batches(panel, self.window, self.batch_size)
        # On a grid, a prior that is not learned is the same for all batches.
        known = None if model.prior.learned or rows.spacing is None else model.prior.at(rows.spacing, steps=self.window)

        def batches(epoch: int) -> Iterator[Cut]:
            return plan.epoch(epoch_generator(self.seed, epoch), fabric.device)

        def bound(cut: Cut, given: Ingredients, warmth: Tensor) -> Loss:
            return model.bound(rows.batch(cut), given, warmth)

        def loss(cut: Cut, generator: torch.Generator, warmth: Tensor) -> Loss:
            given = model.ingredients(rows.times_of(cut), (len(cut.starts), cut.time), generator, known)
            return chosen_bound(cut, given, warmth)

        steps = math.ceil(len(pieces) / plan.even_size)
        config = self._training_config(steps)
        worth_compiling = fabric.device.type == "cuda" and steps * config.epochs >= COMPILE_FROM * plan.shapes
        chosen_bound = compiled(bound) if worth_compiling else bound
        with tensor_cores(fabric.device), progress_bar(config.epochs, steps, show=self.verbose) as report:
            run = train(
                model,
                loss,
                batches,
                config,
                fabric=fabric,
                validate=judge.score if held_out.any() else None,
                checkpoint=Checkpoint(Path(checkpoint), self._fingerprint(panel)) if checkpoint else None,
                report=report,
                groups=model.parameter_groups(self.learning_rate),
                compile=worth_compiling,
            )
        if held_out.any():
            with tensor_cores(fabric.device):
                judge.set_noise()
        self.model_, self.schema_, self.history_ = model.eval(), schema, run.history
        return self

    @torch.no_grad()
    def impute(self, data: Any, *, samples: int = 100, seed: int = 0) -> Imputation:
        """Fill the gaps of `data`: the series fitted to, or others with the same columns, of any length."""
        if samples < 1:
            raise ValueError(f"at least one sample is needed, not {samples}")
        check_is_fitted(self)
        given = Panel.of(data, id=self.schema_.id, time=self.schema_.time)
        panel = self._select(given)
        missing = ~panel.observed & self.schema_.scaling.known
        counts = missing.sum(axis=1)
        first = np.cumsum(counts) - counts  # the first missing cell of each row
        filled = _Filled(int(counts.sum()), samples, self.schema_.scaling)
        likelihood = self.model_.likelihood
        with tensor_cores(self._device):
            for rows, chosen, decoded, generator in self._decoded(panel, samples, seed):
                gaps = torch.from_numpy(np.flatnonzero(missing[rows])).to(decoded.device)
                filled.add(
                    _spans(first[rows], counts[rows]),
                    chosen,
                    gaps % missing.shape[1],
                    mean=likelihood.mean(decoded).flatten(1)[:, gaps],
                    variance=likelihood.variance(decoded).flatten(1)[:, gaps],
                    draws=likelihood.sample(decoded, generator).flatten(1)[:, gaps],
                )
        return self._imputation(given, missing, filled)

    @torch.no_grad()
    def log_likelihood(self, data: Any, truth: Floats, *, samples: int = 100, seed: int = 0) -> Floats:
        """Give log p(true value | observed values) for each missing cell whose true value is given, NaN for the others.

        `truth` and the result are (row, feature) in the panel's layout and units. The predictive density is the
        mixture over the samples.
        """
        check_is_fitted(self)
        given = Panel.of(data, id=self.schema_.id, time=self.schema_.time)
        if truth.shape != given.values.shape:
            raise DataError(f"the truth has shape {truth.shape}, the data {given.values.shape}")
        panel, answers = self._select(given), given.with_values(truth).select(self.schema_.columns).values
        asked = ~panel.observed & ~np.isnan(answers) & self.schema_.scaling.varies
        scaled = torch.from_numpy(np.where(asked, self.schema_.scaling.apply(answers), 0).astype(np.float32))
        total = np.full(answers.shape, -np.inf)
        with tensor_cores(self._device):
            for rows, _, decoded, _ in self._decoded(panel, samples, seed):
                log_prob = self.model_.likelihood.log_prob(decoded, scaled[rows].to(decoded.device)).double()
                total[rows] = np.logaddexp(total[rows], log_prob.logsumexp(0).cpu().numpy())
        scale = np.where(self.schema_.scaling.varies, self.schema_.scaling.scale, 1)
        density = np.full(truth.shape, np.nan)
        density[:, self._places(given)] = np.where(asked, total - math.log(samples) - np.log(scale), np.nan)
        return density

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model into a new folder: weights as safetensors, the rest as JSON."""
        check_is_fitted(self)
        weights = save_tensors({name: value.cpu().contiguous() for name, value in self.model_.state_dict().items()})
        settings = self.get_params(deep=False)
        description = {
            "format": FORMAT,
            "gpvae": version("gpvae"),
            "imputer": "GPVAE",
            "settings": settings | {"model": self.model.to_plain()},
            "columns": list(self.schema_.columns),
            "id": self.schema_.id,
            "time": self.schema_.time,
            "clock": self.schema_.clock,
            "time_unit": self.schema_.time_unit,
            "shift": [None if np.isnan(x) else x for x in self.schema_.scaling.shift.tolist()],
            "scale": self.schema_.scaling.scale.tolist(),
            "history": self.history_,
            "weights_sha256": hashlib.sha256(weights).hexdigest(),
        }
        require_model_folder(Path(folder), overwrite=overwrite)
        with whole_or_not_at_all(Path(folder), force=True) as partial:
            partial.mkdir()
            (partial / "weights.safetensors").write_bytes(weights)
            (partial / "gpvae.json").write_text(json.dumps(description, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> Self:
        """A model that `save` wrote. Anything else is refused, with a reason."""
        description, weights = _read_saved(Path(folder))
        try:
            settings: dict[str, Any] = dict(description["settings"])
            settings["model"] = ModelConfig.from_plain(settings["model"])
            settings["device"] = device
            imputer = cls(**settings)
            schema = _read_schema(description)
            model = imputer._new_model(len(schema.columns))
            model.load_state_dict(load_tensors(weights))
            history = list(description["history"])
            target = fabric_for(device, imputer.precision).device
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            if isinstance(error, TrainingError):
                raise  # no such device: not the folder's fault
            raise DataError(f"{folder} does not hold a model that this version can read: {error}") from error
        imputer.model_, imputer.schema_, imputer.history_ = model.to(target).eval(), schema, history
        return imputer

    def _require_sensible_settings(self) -> None:
        if not isinstance(self.model, ModelConfig):
            raise TypeError(f"model is a ModelConfig, not {self.model!r}; presets are used as GPVAE(**paper.PHYSIONET)")
        sensible = {
            "epochs": (self.epochs is None or self.epochs >= 1, "at least 1, or None"),
            "batch_size": (self.batch_size >= 1, "at least 1"),
            "learning_rate": (0 < self.learning_rate < math.inf, "above 0"),
            "window": (self.window >= 2, "at least 2"),
            "warm_up": (0 <= self.warm_up <= 1, "between 0 and 1"),
            "validation": (0 <= self.validation < 1, "at least 0 and below 1"),
            "patience": (self.patience is None or self.patience >= 1, "at least 1, or None"),
        }
        for name, (fine, wanted) in sensible.items():
            if not fine:
                raise ValueError(f"{name}={getattr(self, name)!r} makes no sense: it is {wanted}")

    def _new_model(self, features: int) -> LatentModel:
        """Fresh weights from the seed; PyTorch draws them from its global CPU generator, which is put back."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return LatentModel(self.model, features)

    def _training_config(self, steps_per_epoch: int) -> TrainingConfig:
        epochs = self.epochs or max(EPOCHS_AT_LEAST, math.ceil(STEPS_AT_LEAST / steps_per_epoch))
        return TrainingConfig(
            epochs=epochs,
            learning_rate=self.learning_rate,
            warm_up=round(self.warm_up * epochs),
            patience=self.patience or math.ceil(epochs / 5),
            seed=self.seed,
        )

    def _require_fitting_values(self, panel: Panel) -> None:
        outside = (panel.values < 0) | (panel.values > 1)
        if self.model.likelihood == "bernoulli" and outside.any():
            row, column = np.argwhere(outside)[0]
            raise DataError(
                f"a Bernoulli likelihood needs values between 0 and 1; column {panel.columns[column]!r} holds "
                f"{panel.values[row, column]:g} at {panel.source.where(int(row))}"
            )

    def _select(self, panel: Panel) -> Panel:
        selected = self.schema_.select(panel)
        self._require_fitting_values(selected)
        return selected

    def _places(self, panel: Panel) -> list[int]:
        """Where the model's columns stand in a panel."""
        return [panel.columns.index(name) for name in self.schema_.columns]

    def _hold_out(self, panel: Panel, schema: Schema) -> Bools:
        """Cells to judge by, in columns that vary."""
        learnable = panel.observed & schema.scaling.varies
        if round(self.validation * learnable.sum()) < 1:
            return np.zeros(panel.values.shape, dtype=bool)
        return missingness.random(
            panel.with_values(np.where(learnable, panel.values, np.nan)), self.validation, [self.seed, 1]
        )

    def _decoded(
        self, panel: Panel, samples: int, seed: int
    ) -> Iterator[tuple[NDArray[np.int64], slice, Tensor, torch.Generator]]:
        """Posterior samples of the rows that have gaps, decoded, in chunks that fit memory.

        Yields the rows, which of the samples these are, the decoded samples (sample, row, feature), and the random
        numbers to go on with.
        """
        device = self._device
        rows = self.schema_.rows(panel, panel.observed, device)
        at_once = _rows_at_once(self.model_)
        for number, pieces in enumerate(whole_series(panel, max(1, at_once // samples))):
            generator = step_generator(seed, number, device)
            batch = rows.batch(Cut.of(pieces, device))
            posterior = self.model_.encode(batch)
            places = np.concatenate([np.arange(piece.start, piece.start + piece.length) for piece in pieces])
            gaps = ~panel.observed[places].all(axis=-1)
            wanted = batch.valid.flatten().nonzero().squeeze(-1)[torch.from_numpy(gaps).to(device)]
            step = max(1, at_once // batch.observed[..., 0].numel())
            for first in range(0, samples, step):
                chosen = slice(first, min(first + step, samples))
                z = posterior.sample(_normal((chosen.stop - first, *posterior.mean.shape), generator))
                yield places[gaps], chosen, self.model_.decode(z.flatten(1, 2)[:, wanted]), generator

    def _imputation(self, panel: Panel, missing: Bools, filled: "_Filled") -> Imputation:
        """Results for the cells `missing` (row, model's column) in the layout of the panel that was given."""
        mean, std = filled.moments()
        places, width, scaling = np.array(self._places(panel)), len(panel.columns), self.schema_.scaling
        shift, scale = np.full(width, np.nan), np.full(width, np.nan)
        shift[places], scale[places] = scaling.shift, scaling.scale
        cells = np.flatnonzero(missing)
        if not np.array_equal(places, np.arange(width)):
            cells = cells // len(places) * width + places[cells % len(places)]
        mean_rows, std_rows = panel.values.copy(), np.where(panel.observed, 0.0, np.nan)
        mean_rows.flat[cells], std_rows.flat[cells] = mean, std
        return Imputation(panel, mean_rows, std_rows, Draws(filled.draws, cells, shift, scale))

    @property
    def _device(self) -> torch.device:
        return next(self.model_.parameters()).device

    def _fingerprint(self, panel: Panel) -> str:
        """Of the settings and the data that decide how training goes."""
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("device", "verbose")}
        digest = hashlib.sha256(json.dumps(settings | {"model": self.model.to_plain(), "order": ORDER}).encode())
        for array in (panel.values, panel.times, panel.lengths):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _rows_at_once(model: LatentModel) -> int:
    """How many time steps to decode in one go."""
    return max(1, NUMBERS_AT_ONCE[next(model.parameters()).device.type] // model.widest)


def _spans(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, … of each span, one after the other."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


class _Filled:
    """What was drawn for each missing cell, gathered from the device while it computes the next."""

    def __init__(self, cells: int, samples: int, scaling: Scaling):
        self.scaling = torch.from_numpy(np.stack([scaling.shift, scaling.scale]))
        self.draws = np.empty((cells, samples), dtype=np.float32)
        self.mean_and_std = np.full((2, cells), np.nan)
        self.sums: Tensor | float = 0.0  # over the samples so far: of means, their squares, and variances
        self.pending: tuple[Any, ...] = ()

    def add(
        self,
        cells: NDArray[np.int64],
        chosen: slice,
        columns: Tensor,
        *,
        mean: Tensor,
        variance: Tensor,
        draws: Tensor,
    ) -> None:
        """(sample, cell) of some cells of some columns; of all samples, or of a few at a time and in order."""
        wide = mean.double()
        self.sums = self.sums + torch.stack([wide.sum(0), (wide**2).sum(0), variance.sum(0, dtype=torch.float64)])
        moments = None
        if chosen.stop == self.draws.shape[1]:
            centre, square, noise = self.sums / chosen.stop
            std = ((square - centre**2).clamp(min=0) + noise).sqrt()
            shift, scale = self.scaling.to(centre.device)[:, columns]
            moments = _to_host(torch.stack([shift + scale * centre, scale * std]))
            self.sums = 0.0
        before, self.pending = self.pending, (cells, chosen, _to_host(draws.T.contiguous()), moments)
        self._store(*before)

    def _store(self, *part: Any) -> None:
        if not part or not len(part[0]):
            return
        cells, chosen, draws, moments = part
        run = slice(cells[0], cells[-1] + 1) if (np.diff(cells) == 1).all() else cells
        torch.from_numpy(self.draws)[run, chosen] = draws()
        if moments:
            self.mean_and_std[:, run] = moments()

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and deviation of each cell, observation noise included, in the data's units."""
        self._store(*self.pending)
        self.pending = ()
        mean, std = self.mean_and_std
        return mean, std


def _to_host(x: Tensor) -> Callable[[], Tensor]:
    """Begin to copy from the device; the copy, when it is asked for."""
    if not x.is_cuda:
        return lambda: x
    host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
    done = torch.cuda.Event()
    done.record()

    def wait() -> Tensor:
        done.synchronize()
        return host

    return wait


@dataclass(frozen=True)
class _Judge:
    """Held-out cells: how well they are predicted, and the noise level that they call for."""

    model: LatentModel
    rows: Rows  # what the encoder sees
    answers: Rows  # the held-out cells
    pieces: list[Piece]
    seed: int

    SAMPLES = 4  # of the posterior, for each judgement; more to set the noise, which is done once
    LEVEL, DEVIATIONS = 0.9, 1.6449  # the interval that the noise is set for; how far it reaches in a Gaussian
    PRIOR_CELLS = 20  # how many held-out cells the noise found in training is worth

    @torch.no_grad()
    def score(self) -> float:
        """Negative log density of a held-out cell; where the noise is learned, with the noise that suits it best.

        Noise learned from cells that the encoder sees falls below what the others call for; judged by it, training
        would stop while predictions still get better.
        """
        if self._noise_is_learned:
            feature, error, _ = self._errors(self.SAMPLES)
            count = np.bincount(feature)
            squares = np.bincount(feature, error**2)
            used = count > 0
            per_cell = 0.5 * (LOG_2PI + 1 + np.log(np.maximum(squares[used] / count[used], 1e-12)))
            return float((per_cell * count[used]).sum() / count.sum())
        total, cells = 0.0, 0
        for decoded, values, asked in self._predictions(self.SAMPLES):
            log_prob = self.model.likelihood.log_prob(decoded, values).double().logsumexp(0) - math.log(self.SAMPLES)
            total, cells = total - float(log_prob[asked].sum()), cells + int(asked.sum())
        return total / cells

    @torch.no_grad()
    def set_noise(self) -> None:
        """Make the interval hold as many held-out cells of each feature as it says.

        A cell with error e and posterior variance v lies inside if noise² ≥ (e / 1.6449)² - v, so the 0.9 quantile
        of the right-hand side is the noise² for which nine of ten do. The maximum-likelihood estimate, the mean of
        e² - v, follows the few largest errors, and makes intervals too wide for the rest; but the noise stays above
        half of it, lest a column that is mostly zeros, such as rain, leave no room for the rest of its values.
        """
        if not self._noise_is_learned:
            return
        assert isinstance(self.model.likelihood, Gaussian)
        feature, error, variance = self._errors(8 * self.SAMPLES)
        needed = (error / self.DEVIATIONS) ** 2 - variance
        noise = self.model.likelihood.noise.cpu().numpy().astype(np.float64)
        likely = error**2 - variance
        for j in np.unique(feature):
            cells = needed[feature == j]
            found = max(np.quantile(cells, self.LEVEL, method="weibull"), likely[feature == j].mean() / 4, 0)
            noise[j] = np.sqrt(
                (self.PRIOR_CELLS * noise[j] ** 2 + len(cells) * found) / (self.PRIOR_CELLS + len(cells))
            )
        self.model.likelihood.set_noise(torch.from_numpy(noise).float())

    @property
    def _noise_is_learned(self) -> bool:
        return isinstance(self.model.likelihood, Gaussian) and self.model.config.noise is None

    def _errors(self, samples: int) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Of every held-out cell: its feature, x - E decoded, and Var decoded."""
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        for decoded, values, asked in self._predictions(samples):
            parts.append((asked.nonzero()[:, -1], (values - decoded.mean(0))[asked], decoded.var(0)[asked]))
        feature, error, variance = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
        return feature, error.astype(np.float64), variance.astype(np.float64)

    def _predictions(self, samples: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For the rows with held-out cells: decoded (sample, row, feature), the values, and which are held out."""
        longest = max(piece.length for piece in self.pieces)
        size = max(1, _rows_at_once(self.model) // (longest * samples))
        for first in range(0, len(self.pieces), size):
            pieces = self.pieces[first : first + size]
            cut = Cut.of(pieces, self.rows.values.device)
            posterior, held = self.model.encode(self.rows.batch(cut)), self.answers.batch(cut)
            generator = step_generator(self.seed, first, posterior.mean.device)
            z = posterior.sample_marginals(_normal((samples, *posterior.mean.shape), generator))
            asked = held.observed.any(-1)
            yield self.model.decode(z[:, asked]), held.values[asked], held.observed[asked]


def _read_schema(description: dict[str, Any]) -> Schema:
    columns, clock, unit = tuple(description["columns"]), description["clock"], float(description["time_unit"])
    shift = np.array([np.nan if x is None else x for x in description["shift"]], dtype=np.float64)
    scale = np.array(description["scale"], dtype=np.float64)
    if shift.shape != (len(columns),) or scale.shape != shift.shape or clock not in get_args(Clock) or not unit > 0:
        raise ValueError("its columns, scales and times do not fit together")
    return Schema(columns, clock, unit, Scaling(shift, scale), description["id"], description["time"])


def require_model_folder(folder: Path, *, overwrite: bool) -> None:
    """A place where a model can be saved: new, or, to overwrite, a model or an empty folder, and nothing else."""
    if _is_empty_folder(folder):
        return
    require_writable(folder, force=overwrite)
    if folder.exists() and not (folder / "gpvae.json").is_file():
        raise DataError(f"{folder} is not a model, so it is not replaced")


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _read_saved(folder: Path) -> tuple[dict[str, Any], bytes]:
    if not folder.is_dir():
        raise DataError(f"there is no model folder {folder}")
    try:
        description = json.loads((folder / "gpvae.json").read_text(encoding="utf-8"))
        weights = (folder / "weights.safetensors").read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} is not a gpvae model: {error}") from None
    found = description.get("format") if isinstance(description, dict) else None
    if found != FORMAT:
        raise DataError(f"{folder} has the model format {found!r}; this version reads format {FORMAT}")
    if hashlib.sha256(weights).hexdigest() != description.get("weights_sha256"):
        raise DataError(f"{folder}/weights.safetensors is damaged: its checksum is not the one that was saved")
    return description, weights
