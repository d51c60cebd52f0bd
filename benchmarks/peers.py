"""PyPOTS's GP-VAE, BRITS, SAITS and CSDI: training steps and samplers to be timed, and imputers to be fitted.

All functions build the public PyPOTS class, so every value not set here is PyPOTS's own default. PyPOTS is imported
on the first call; importing this module does not need it.
"""

import importlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpvae import Panel, missingness
from gpvae.data.panel import Bools
from gpvae.data.schema import Schema
from gpvae.imputers.base import Imputer, Prediction

MISSING_RATE = 0.5
FILL_BATCH = 1024  # windows that are filled together; the batch size of training is PyPOTS's own
PAPER_SETTINGS: dict[str, dict[str, Any]] = {  # for PhysioNet; PyPOTS has no defaults for these sizes
    "saits": {"n_layers": 2, "d_model": 256, "n_heads": 4, "d_k": 64, "d_v": 64, "d_ffn": 128, "dropout": 0.1},
    "csdi": {
        **{"n_layers": 4, "n_heads": 8, "n_channels": 64, "n_diffusion_steps": 50},
        **{"d_time_embedding": 128, "d_feature_embedding": 16, "d_diffusion_embedding": 128},
    },
}


@contextmanager
def quiet() -> Iterator[None]:
    """Hide PyPOTS's banner (standard output) and its notices up to warnings (logging)."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
            yield
    finally:
        logging.disable(before)


def _imputers() -> Any:
    """Import PyPOTS's imputation models without the banner."""
    with quiet():
        return importlib.import_module("pypots.imputation")


def _random_data(series: int, time: int, features: int) -> Tensor:
    """Draw standard normal series on the CPU, each value missing (NaN) with probability `MISSING_RATE`."""
    x = torch.randn(series, time, features)
    return torch.where(torch.rand_like(x) < MISSING_RATE, torch.nan, x)


def _training_step(peer: Any, inputs: Any) -> Callable[[], None]:
    """Return the body of PyPOTS's training loop, on one batch."""
    peer.model.train()

    def step() -> None:
        peer.optimizer.zero_grad()
        loss = peer.model(inputs, calc_criterion=True)["loss"].sum()
        loss.backward()
        peer.optimizer.step()

    return step


def gpvae_step(
    batch: int,
    time: int,
    features: int,
    latent: int,
    *,
    encoder_sizes: Sequence[int],
    decoder_sizes: Sequence[int],
    window: int,
    device: str,
) -> Callable[[], None]:
    """Return a function that does one training step of PyPOTS's GP-VAE (Cauchy kernel, length scale 7) on one batch.

    The step is the body of PyPOTS's training loop, less the fetching of the batch (it is on the device already) and
    the reading of the loss as a Python number. The first call also builds the prior, so call it once before timing.

    Args:
        batch: Number of series.
        time: Number of time steps.
        features: Number of features.
        latent: Number of latent dimensions.
        encoder_sizes: Width of the convolution, then of each dense layer after it.
        decoder_sizes: Width of each hidden dense layer of the decoder.
        window: Width of the convolution's kernel in time steps.
        device: Name of the torch device.

    Returns:
        A function of no arguments; on an accelerator it returns before the work is done.
    """
    imputers = _imputers()
    with quiet():
        peer = imputers.GPVAE(
            n_steps=time,
            n_features=features,
            latent_size=latent,
            encoder_sizes=tuple(encoder_sizes),
            decoder_sizes=tuple(decoder_sizes),
            kernel="cauchy",
            length_scale=7.0,
            window_size=window,
            device=device,
            verbose=False,
        )
    x = _random_data(batch, time, features).to(device)
    inputs = {"X": torch.nan_to_num(x), "missing_mask": (~torch.isnan(x)).float()}
    return _training_step(peer, inputs)


def imputer(name: str, time: int, features: int, *, device: str | None = None, **settings: Any) -> Any:
    """Return PyPOTS's SAITS or CSDI ("saits", "csdi") with new weights, `settings` over those of its paper."""
    peer_class = getattr(_imputers(), name.upper())
    with quiet():
        return peer_class(
            n_steps=time,
            n_features=features,
            device=device,
            verbose=False,
            **{**PAPER_SETTINGS[name], **settings},
        )


def brits(time: int, features: int, *, hidden: int, device: str, **training: int) -> Any:
    """Return PyPOTS's BRITS with new weights; `training` are settings of its own: batch_size, epochs, patience."""
    imputers = _imputers()
    with quiet():
        return imputers.BRITS(
            n_steps=time, n_features=features, rnn_hidden_size=hidden, device=device, verbose=False, **training
        )


def brits_inputs(values: Tensor, observed: Tensor) -> dict[str, dict[str, Tensor]]:
    """Return what PyPOTS's BRITS takes for a batch (batch, time, feature): both directions, with time gaps."""
    parse = importlib.import_module("pypots.data.utils")._parse_delta_torch
    x, m = values * observed, observed.float()
    directions = {"forward": (x, m), "backward": (x.flip(1), m.flip(1))}
    return {name: {"X": x, "missing_mask": m, "deltas": parse(m)} for name, (x, m) in directions.items()}


def brits_step(values: Tensor, observed: Tensor, *, hidden: int) -> Callable[[], None]:
    """Return a function that does one training step of PyPOTS's BRITS on one batch.

    The step is the body of PyPOTS's training loop, less the fetching of the batch (it is on the device already, its
    time gaps computed) and the reading of the loss as a Python number.

    Args:
        values: The batch, (batch, time, feature), on the device.
        observed: Which of them are observed.
        hidden: Size of the LSTM's state; PyPOTS has no default, 108 is what the paper's own code has.

    Returns:
        A function of no arguments; on an accelerator it returns before the work is done.
    """
    peer = brits(*values.shape[1:], hidden=hidden, device=values.device.type)
    inputs = brits_inputs(values, observed)
    return _training_step(peer, inputs)


def csdi_sampler(
    time: int,
    features: int,
    *,
    series: int,
    samples: int,
    device: str,
    layers: int = 4,
) -> Callable[[], None]:
    """Return a function that draws imputations with PyPOTS's CSDI (untrained weights cost the same as trained ones).

    It calls PyPOTS's `predict` with all series in one batch; `predict` draws the samples one after another, each
    through all 50 diffusion steps, and returns NumPy arrays, so the work is done when the function returns.

    Args:
        time: Number of time steps.
        features: Number of features.
        series: Number of series.
        samples: Number of imputations for each series.
        device: Name of the torch device.
        layers: Number of residual layers; PyPOTS has no default, four is what CSDI's own settings for PhysioNet have.

    Returns:
        A function of no arguments.
    """
    peer = imputer("csdi", time, features, device=device, n_layers=layers, batch_size=series)
    data = {"X": _random_data(series, time, features).numpy()}

    def sample() -> None:
        peer.predict(data, n_sampling_times=samples)

    return sample


def windows_of(lengths: NDArray[np.int64], size: int, stride: int) -> NDArray[np.int64]:
    """Rows of each window, for series stored one after another; the last window ends with its series. (window, step)"""
    ends = np.cumsum(lengths)
    starts = [
        np.append(np.arange(0, length - size, stride), length - size) + end - length
        for length, end in zip(lengths, ends, strict=True)
    ]
    return np.concatenate(starts)[:, None] + np.arange(size)


@dataclass(eq=False, repr=False)
class Peer(Imputer):
    """One of PyPOTS's methods, applied to windows.

    It validates on a tenth of the cells of every eighth window: for CSDI, validating on all takes too long. It can give
    samples, but no densities.
    """

    peer: str
    settings: Mapping[str, Any]
    window: int
    stride: int
    seed: int = 0
    device: str = "auto"

    def fit(self, data: Any, y: None = None, **places: Any) -> Self:
        panel = self._read(data)
        self.schema_, self.history_ = self._new_schema(panel), []
        size = min(self.window, int(panel.lengths.min()))
        validation = windows_of(panel.lengths, size, size)[::8]
        hidden = np.zeros(panel.values.shape, dtype=bool)
        hidden[validation] = missingness.random(panel, 0.1, [self.seed, 1])[validation]
        whole, visible = self._scaled(panel), self._scaled(missingness.hide(panel, hidden))
        torch.manual_seed(self.seed)
        np.random.seed(self.seed)
        device = None if self.device == "auto" else self.device
        self.peer_ = imputer(self.peer, size, len(panel.columns), device=device, **self.settings)
        with quiet():
            training = visible[windows_of(panel.lengths, size, min(size, self.stride))]
            self.peer_.fit({"X": training}, {"X": visible[validation], "X_ori": whole[validation]})
        return self

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=True)

    def _scaled(self, panel: Panel) -> NDArray[np.float32]:
        return self.schema_.scaling.apply(panel.values).astype(np.float32)

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        rows = windows_of(panel.lengths, self.peer_.n_steps, self.peer_.n_steps)
        position = np.empty((2, len(panel.values)), dtype=np.int64)  # of each row: its window, and the step in it
        position[:, rows] = np.broadcast_arrays(np.arange(len(rows))[:, None], np.arange(rows.shape[1]))
        torch.manual_seed(seed)
        draws = {"n_sampling_times": samples} if self.peer == "csdi" else {}
        self.peer_.batch_size = FILL_BATCH
        with quiet():
            filled = self.peer_.impute({"X": self._scaled(panel)[rows]}, **draws)  # (window, [sample,] step, feature)
        (row, feature), scaling = np.nonzero(missing), self.schema_.scaling
        window, step = position[:, row]
        if not draws:
            return Prediction(scaling.undo(filled[window, step, feature], feature))
        drawn = filled[window, :, step, feature]  # (cell, sample)
        mean, std = scaling.undo(drawn.mean(axis=1), feature), scaling.scale[feature] * drawn.std(axis=1)
        return Prediction(mean, std, drawn, stratified=False)
