"""Speed compared with PyPOTS 1.5, same shapes and layer sizes, one process: `python benchmarks/speed.py --device cuda`.

Writes results/speed_<device>.csv: one training step with Adam (ours as `fit` takes it, PyPOTS's GP-VAE as its own loop
takes it), the imputation of data of PhysioNet's size with 100 samples (compared with PyPOTS's CSDI), a whole training
run with the paper's settings, and on CUDA the share of the copy bandwidth that the KL kernels reach. Before anything is
timed, our loss is compared with a float64 computation by the readable formulas.
"""

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import peers
import provenance
import torch
from steps import median_seconds, rows_on_device, synchronise, time_and_memory, training_step

from gpvae import GPVAE, paper
from gpvae.data.batches import Batch
from gpvae.gp import Chain, NeighbourFactor, chain_kl, kl_steps
from gpvae.gp.kernels import Cauchy, LatentKernel
from gpvae.models.config import ModelConfig, Objective
from gpvae.models.encoders import Convolution
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.likelihoods import Gaussian
from gpvae.models.prior import GPPrior, Prior
from gpvae.training.objective import BoundObjective

Row = dict[str, object]


@dataclass(frozen=True)
class Case:
    name: str
    batch: int
    time: int
    features: int
    latent: int
    encoder: tuple[int, ...] = (128, 128)  # filters of the convolution, then dense layers
    decoder: tuple[int, ...] = (256, 256)
    window: int = 24
    neighbours: int | None = None

    def config(self) -> ModelConfig:
        """The paper's model with these sizes."""
        filters, *widths = self.encoder
        return ModelConfig(
            latent_dim=self.latent,
            prior=Prior(Cauchy(7.0), neighbours=self.neighbours),
            encoder=Convolution(filters, self.window, tuple(widths)),
            decoder_widths=self.decoder,
            likelihood=Gaussian(noise=1.0),
            objective=Objective(beta=0.2),
        )

    def build(self, device: str) -> GPVAEModel:
        torch.manual_seed(0)
        return self.config().build(["real"] * self.features).to(device)


FAST = [
    Case("PhysioNet", 64, 48, 35, 35),
    Case("Healing MNIST as vectors", 64, 10, 784, 256, (256, 256), (256, 256, 256), 3),
    Case("T 512", 16, 512, 16, 16),
]
EXACT = [Case("PhysioNet, exact prior", 64, 48, 35, 35, neighbours=47)]
LONG = [Case("T 1024", 16, 1024, 16, 16), Case("T 2048", 16, 2048, 16, 16)]


def our_step(case: Case, device: str, *, compile: bool = False, precision: str = "32-true") -> Callable[[], None]:
    """One update of the weights, as `GPVAE.fit` does it: the batch is gathered from rows on the device."""
    rows, cut = rows_on_device(random_batch(case, device))
    settings = case.config().objective
    objective = BoundObjective(case.build(device), rows, settings, None, longest=case.time, compile=compile)
    return training_step(objective, cut, device, precision=precision, compile=compile)


def their_step(case: Case, device: str) -> Callable[[], None]:
    return peers.gpvae_step(
        case.batch,
        case.time,
        case.features,
        case.latent,
        encoder_sizes=case.encoder,
        decoder_sizes=case.decoder,
        window=case.window,
        device=device,
    )


def random_batch(case: Case, device: str) -> Batch:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(case.batch, case.time, case.features, generator=generator)
    observed = torch.rand(values.shape, generator=generator) < 0.5
    lengths = torch.full((case.batch,), case.time)
    return Batch((values * observed).to(device), observed.to(device), 1.0, lengths.to(device))


def relative_error(case: Case, device: str) -> float:
    """Of our loss against float64: dense layers in double precision, the KL by the readable formula."""
    model, batch = case.build(device), random_batch(case, device)
    noise = model.sample_noise((1, case.batch, case.time), torch.Generator(device).manual_seed(0))
    prior = model.prior.at(1.0, steps=case.time)
    ours = float(model.elbo(batch, batch, prior=prior, noise=noise, beta=0.2).total.detach())
    exact, on_cpu = copy.deepcopy(model).cpu().double(), random_batch(case, "cpu")
    double = Batch(on_cpu.values.double(), on_cpu.observed, 1.0, on_cpu.lengths)
    posterior, context = exact.encode(double)
    z = posterior.sample_marginals(noise.cpu().double())
    nll = -exact._log_likelihood(z, context, double, double.observed).mean(0).sum()
    kl = kl_steps(posterior, exact.prior.factor(1.0, torch.float64)).sum()
    reference = float(((nll + 0.2 * kl) / double.steps).detach())
    return abs(ours - reference) / abs(reference)


def training_steps(device: str, cases: list[Case]) -> list[Row]:
    rows: list[Row] = []
    for case in cases:
        error = relative_error(case, device)
        if not error < 1e-4:
            raise SystemExit(f"{case.name}: our loss is off by {error:.1e} of the float64 reference")
        theirs, their_memory = time_and_memory(partial(their_step, case, device), device)
        variants: dict[str, dict[str, Any]] = {"default": {}}
        if device == "cuda":
            variants["compiled"] = {"compile": True}
            variants["compiled, bf16"] = {"compile": True, "precision": "bf16-mixed"}
        for name, settings in variants.items():
            ours, memory = time_and_memory(partial(our_step, case, device, **settings), device)
            rows.append(_row("training step", case.name, name, ours, theirs, memory, their_memory, error))
    return rows


def _row(
    what: str,
    case: str,
    variant: str,
    ours: float,
    theirs: float = float("nan"),
    memory: float = float("nan"),
    their_memory: float = float("nan"),
    error: float = float("nan"),
    share_of_copy: float = float("nan"),
) -> Row:
    row: Row = {
        "what": what,
        "case": case,
        "variant": variant,
        "ours_ms": f"{1e3 * ours:.4g}",
        "peer_ms": f"{1e3 * theirs:.4g}",
        "ratio": f"{theirs / ours:.4g}",
        "ours_gb": f"{memory:.3g}",
        "peer_gb": f"{their_memory:.3g}",
        "error_of_loss": f"{error:.1e}",
        "share_of_copy": f"{share_of_copy:.3f}",
    }
    print(" ".join(f"{name}={value}" for name, value in row.items() if "nan" not in str(value)), flush=True)
    return row


def physionet_like(series: int) -> np.ndarray:
    """Random series × 48 × 35 of which a fifth is observed, as in PhysioNet 2012."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(series, 48, 35)).cumsum(axis=1)
    values[rng.random(values.shape) < 0.8] = np.nan
    return values


def imputation(device: str, series: int, csdi_series: int) -> list[Row]:
    """100 samples for each series; one sample of one series compared with CSDI."""
    data = physionet_like(series)
    model = GPVAE(**{**paper.PHYSIONET, "epochs": 1, "device": device}).fit(data[:64])
    model.impute(data[:64])
    started = time.perf_counter()
    model.impute(data, samples=100)
    ours = time.perf_counter() - started
    samples = 1
    theirs = median_seconds(
        peers.csdi_sampler(48, 35, series=csdi_series, samples=samples, device=device), device, least=0.1
    )
    case = f"{series} × 48 × 35, 100 samples"
    per_sample, their_per_sample = ours / series / 100, theirs / csdi_series / samples
    return [
        _row("imputation", case, "all", ours),
        _row("imputation of a series, one sample", case, "against CSDI", per_sample, their_per_sample),
    ]


def whole_run(device: str, series: int) -> list[Row]:
    """The paper's PhysioNet training on data of its size: 40 epochs, and one, which shows what the start costs."""
    data = physionet_like(series)
    case = f"{series} × 48 × 35, 40 epochs"
    rows: list[Row] = []
    for epochs in (1, 40):
        started = time.perf_counter()
        GPVAE(**{**paper.PHYSIONET, "epochs": epochs, "device": device}).fit(data)
        synchronise(device)
        rows.append(_row("whole training run", case, f"{epochs} epochs", time.perf_counter() - started))
    return rows


def kl_bandwidth() -> list[Row]:
    """Bandwidth of the KL kernels, which must move 12 bytes a value forward and 24 backward, as a share of a copy's."""
    from triton.testing import do_bench  # pyright: ignore[reportMissingImports]

    def milliseconds(work: Callable[[], Any]) -> float:
        median = do_bench(work, warmup=50, rep=200, return_mode="median")
        assert isinstance(median, float)
        return median

    source, target = torch.randn(2, 2**28, device="cuda")
    copied = 8 * source.numel() / milliseconds(lambda: target.copy_(source))
    shape = (64, 16384, 64)
    mean, corr = torch.randn(shape, device="cuda"), torch.rand(shape, device="cuda")[:, 1:] * 1.8 - 0.9
    chain = Chain(mean, torch.rand(shape, device="cuda") + 0.2, corr)
    lengths = torch.full((shape[0],), shape[1], device="cuda")
    rows = [_row("copy of 1 GB", f"{copied / 1e6:.0f} GB/s", "", 8 * source.numel() / copied / 1e3)]
    for order in (8, 16):
        prior = GPPrior(LatentKernel(Cauchy(7.0), shape[2]), neighbours=order, jitter=1e-3).to("cuda")
        factor: NeighbourFactor = prior.factor(1.0)
        forward = milliseconds(lambda factor=factor: chain_kl(chain, factor, lengths))
        inputs = [x.clone().requires_grad_() for x in (chain.mean, chain.std, chain.corr)]
        total = chain_kl(Chain(*inputs), factor, lengths).sum()
        backward = milliseconds(
            lambda total=total, inputs=inputs: torch.autograd.grad(total, inputs, retain_graph=True)
        )
        for name, ms, size in (("forward", forward, 12), ("backward", backward, 24), ("both", forward + backward, 36)):
            share = size * mean.numel() / ms / copied
            rows.append(_row("KL kernel", f"64 × 16384 × 64, p = {order}", name, ms / 1e3, share_of_copy=share))
    return rows


PARTS = ("steps", "imputation", "run", "kernel")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    cuda = options.device == "cuda"
    work: dict[str, list[Callable[[], list[Row]]]] = {
        "steps": [
            lambda case=case: training_steps(options.device, [case]) for case in (FAST + LONG if cuda else FAST + EXACT)
        ],
        "imputation": [lambda: imputation(options.device, 4000 if cuda else 200, 64 if cuda else 4)],
        "run": [lambda: whole_run(options.device, 4000)] if cuda else [],
        "kernel": [kl_bandwidth] if cuda else [],
    }
    rows: list[Row] = []
    for part in options.parts:
        for measure in work[part]:
            rows += measure()
            provenance.write(options.output or provenance.ROOT / "results" / f"speed_{options.device}.csv", rows)


if __name__ == "__main__":
    main()
