"""The interface of PyPOTS: a script for it runs with one import changed.

    from gpvae.adapters.pypots import GPVAE  # instead of: from pypots.imputation import GPVAE

Sets are dicts with an array "X" (series, step, feature) in which NaN is missing; results are dicts with "imputation".
PyPOTS itself is not needed.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gpvae
from gpvae.data.panel import DataError
from gpvae.gp.kernels import RBF, Cauchy, Kernel, Matern
from gpvae.imputers.base import Imputer
from gpvae.models.config import Objective
from gpvae.models.prior import Prior
from gpvae.training.recipe import Recipe

Array = NDArray[Any]
Set = Mapping[str, Any]


class _Imputation:
    """What all of PyPOTS's imputation models do, done by `imputer`."""

    def __init__(self, n_steps: int, n_features: int, imputer: Imputer, folder: str | None):
        self.n_steps, self.n_features = n_steps, n_features
        self.imputer, self.saving_path = imputer, folder

    def fit(self, train_set: Set, val_set: Set | None = None, file_type: str = "hdf5") -> None:
        """Learn from `train_set["X"]`; with a `saving_path`, the model is saved there.

        `val_set` is not used: a tenth of the observed cells of `train_set` is held out instead, where a method
        validates.
        """
        if val_set is not None:
            warnings.warn("val_set is not used: cells of train_set are held out for validation", stacklevel=2)
        self.imputer.fit(self._array(train_set))
        if self.saving_path:
            self.imputer.save(self.saving_path, overwrite=True)

    def predict(self, test_set: Set, file_type: str = "hdf5") -> dict[str, Array]:
        """Fill `test_set["X"]`: "imputation" (series, step, feature).

        Methods that give distributions add "std", and the ends of 90 % intervals, "lower" and "upper".
        """
        filled = self.imputer.impute(self._array(test_set))
        result = {"imputation": filled.mean}
        if filled.has_intervals:
            result["std"] = filled.std
            result["lower"], result["upper"] = filled.interval(0.9)
        return result

    def impute(self, test_set: Set, file_type: str = "hdf5") -> Array:
        """The "imputation" of `predict`."""
        return self.predict(test_set)["imputation"]

    def save(self, saving_path: str | Path, overwrite: bool = False) -> None:
        """Write the model into a folder, which `gpvae.load` reads, too."""
        self.imputer.save(saving_path, overwrite=overwrite)

    def load(self, path: str | Path) -> None:
        """Take the model that `save` wrote."""
        self.imputer = type(self.imputer).load(path)

    def _array(self, given: Set) -> Array:
        if isinstance(given, str | Path):
            raise DataError(f"{given}: read the file first, and pass a dict with its array 'X'")
        if "X" not in given:
            raise DataError(f"the set must have an array 'X', got {', '.join(map(repr, given))}")
        values, expected = np.asarray(given["X"]), (self.n_steps, self.n_features)
        if values.ndim != 3 or values.shape[1:] != expected:
            raise DataError(f"X must have shape (series, {self.n_steps}, {self.n_features}), got {values.shape}")
        return values


class GPNet(_Imputation):
    """`gpvae.GPNet`, the default of this library, with the interface of PyPOTS."""

    def __init__(
        self,
        n_steps: int,
        n_features: int,
        minutes: float | None = None,
        seed: int = 0,
        saving_path: str | None = None,
        verbose: bool = True,
    ):
        imputer = gpvae.GPNet(minutes=minutes, seed=seed, verbose=verbose)
        super().__init__(n_steps, n_features, imputer, saving_path)


class GPVAE(_Imputation):
    """The paper's model with the arguments of PyPOTS's `GPVAE`.

    Of an `optimizer` only its learning rate `lr` is used: the optimiser is Adam. `num_workers` has no effect. Columns
    are standardised for the model, which is undone in its results. The kernel "diffusion" is not available.
    """

    def __init__(
        self,
        n_steps: int,
        n_features: int,
        latent_size: int,
        encoder_sizes: Sequence[int] = (64, 64),
        decoder_sizes: Sequence[int] = (64, 64),
        kernel: str = "cauchy",
        beta: float = 0.2,
        M: int = 1,  # noqa: N803
        K: int = 1,  # noqa: N803
        sigma: float = 1.0,
        length_scale: float = 7.0,
        kernel_scales: int = 1,
        window_size: int = 3,
        batch_size: int = 32,
        epochs: int = 100,
        patience: int | None = None,
        optimizer: Any = None,
        num_workers: int = 0,
        device: Any = None,
        saving_path: str | None = None,
        model_saving_strategy: str | None = "best",
        verbose: bool = True,
    ):
        paper = gpvae.paper.PHYSIONET["model"]
        widths = {"filters": encoder_sizes[0], "window": window_size, "widths": tuple(encoder_sizes[1:])}
        model = replace(
            paper,
            latent_dim=latent_size,
            prior=Prior(_kernel(kernel, sigma, length_scale, kernel_scales)),
            encoder=replace(paper.encoder, **widths),
            decoder_widths=tuple(decoder_sizes),
            objective=Objective(beta=beta, mc_samples=M, importance_samples=K),
        )
        recipe = _recipe(n_steps, batch_size, epochs, patience, optimizer)
        imputer = gpvae.GPVAE(model, recipe=recipe, epochs=epochs, device=_device(device), verbose=verbose)
        super().__init__(n_steps, n_features, imputer, saving_path if model_saving_strategy else None)

    def predict(self, test_set: Set, file_type: str = "hdf5", n_sampling_times: int = 1) -> dict[str, Array]:
        """As of the other models, but "imputation" is (series, draw, step, feature), as in PyPOTS.

        One draw is the mean; more are draws, noise included.
        """
        values = self._array(test_set)
        if n_sampling_times == 1:
            result = super().predict(test_set)
            return result | {"imputation": result["imputation"][:, None]}
        filled = self.imputer.impute(values, samples=n_sampling_times)
        return {"imputation": np.swapaxes(filled.samples, 0, 1)}

    def impute(self, test_set: Set, file_type: str = "hdf5", n_sampling_times: int = 1) -> Array:
        """The "imputation" of `predict`."""
        return self.predict(test_set, n_sampling_times=n_sampling_times)["imputation"]


class BRITS(_Imputation):
    """`gpvae.BRITS` with the arguments of PyPOTS's; see `GPVAE` for those that have no effect."""

    def __init__(
        self,
        n_steps: int,
        n_features: int,
        rnn_hidden_size: int,
        batch_size: int = 32,
        epochs: int = 100,
        patience: int | None = None,
        optimizer: Any = None,
        num_workers: int = 0,
        device: Any = None,
        saving_path: str | None = None,
        model_saving_strategy: str | None = "best",
        verbose: bool = True,
    ):
        recipe = _recipe(n_steps, batch_size, epochs, patience, optimizer)
        settings: dict[str, Any] = {"recipe": recipe, "epochs": epochs, "device": _device(device), "verbose": verbose}
        imputer = gpvae.BRITS(hidden=rnn_hidden_size, **settings)
        super().__init__(n_steps, n_features, imputer, saving_path if model_saving_strategy else None)


def _kernel(name: str, sigma: float, length_scale: float, scales: int) -> Kernel:
    """Kernels of PyPOTS: σ / (1 + r²/l²), exp(-r²/l²) and exp(-r/√l), with length scales l, l/2, l/4, …"""
    lengths = [length_scale / 2**i for i in range(scales)]
    if name == "cauchy":
        return Cauchy(tuple(lengths), variance=sigma)
    if name == "rbf":
        return RBF(tuple(length / math.sqrt(2) for length in lengths))
    if name == "matern":
        return Matern(tuple(math.sqrt(length) for length in lengths), nu=0.5)
    raise ValueError(f"kernel must be 'cauchy', 'rbf' or 'matern', got {name!r}")


def _recipe(n_steps: int, batch_size: int, epochs: int, patience: int | None, optimizer: Any) -> Recipe:
    rate = 1e-3 if optimizer is None else getattr(optimizer, "lr", None)
    if not isinstance(rate, int | float):
        raise ValueError(f"the optimizer must have a learning rate lr, got {optimizer!r}")
    patience = epochs if patience is None else patience
    return Recipe(learning_rate=rate, batch_size=batch_size, window=max(2, n_steps), patience=patience)


def _device(device: Any) -> str:
    return "auto" if device is None else str(device).partition(":")[0]
