"""The latent series and the course of training."""

from typing import Any, cast

import numpy as np
import pytest
from report_examples import imputation_by_factors, summary

from gpvae import (
    GPVAE,
    GPFactor,
    ModelConfig,
    Panel,
)
from gpvae.gp.kernels import RBF, Cauchy
from gpvae.models.parts import ContextDecoder
from gpvae.models.prior import Prior
from gpvae.report.evidence import held_out_evidence
from gpvae.report.training import describe


def test_latents_of_each_row_depend_on_their_series_only(tiny: GPVAE, waves: Any) -> None:
    latents = tiny.fit(waves).latents(waves)
    assert latents.mean.shape == latents.std.shape == (360, 3)
    assert (latents.std > 0).all()
    alone = tiny.latents(waves[4:5])
    np.testing.assert_allclose(latents.mean[120:150], alone.mean, atol=1e-4)


def test_latent_ignored_by_the_decoder_has_no_influence(tiny: GPVAE, waves: Any) -> None:
    tiny.fit(waves)
    first: Any = cast(ContextDecoder, tiny.method_.network.decoder).dense[0]
    first.weight.data[:, 1] = 0
    influence = tiny.influence(waves)
    assert influence.shape == (5, 3)  # three latents, all of them together, and the nearest visible values
    assert (influence[1] == 0).all()
    assert (influence[[0, 2, 3, 4]] > 0).all()


def test_influence_is_measured_on_part_of_a_long_series(
    tiny: GPVAE, waves: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = waves.reshape(1, -1, 3).copy()
    imputation = tiny.fit(long).impute(long)
    monkeypatch.setattr("gpvae.report.latent.ROWS_TO_PROBE", 50)
    probed: list[int] = []
    influence = GPVAE.influence
    monkeypatch.setattr(GPVAE, "influence", lambda own, x: (probed.append(len(x.values)), influence(own, x))[1])
    summary(imputation)
    assert probed == [50]


@pytest.mark.filterwarnings("error")
def test_influence_on_an_empty_column_is_unknown(tiny: GPVAE, waves: Any) -> None:
    empty = waves[:2].copy()
    empty[..., 1] = np.nan
    influence = tiny.fit(waves).influence(empty)
    assert np.isnan(influence[:, 1]).all()
    assert (influence[:, [0, 2]] > 0).all()


@pytest.mark.parametrize(("kernel", "expected"), [(Cauchy(7.0), 7.0), (RBF(5.0), 5 * np.sqrt(2 * np.log(2)))])
def test_length_scales(kernel: Any, expected: float, waves: Any) -> None:
    config = ModelConfig(latent_dim=3, prior=Prior(kernel), decoder_widths=(8,))
    model = GPVAE(config, epochs=1, device="cpu").fit(Panel.from_array(waves, times=np.arange(30) * 10.0))
    np.testing.assert_allclose(model.length_scales(), 10 * expected, rtol=0.01)


def test_report_of_latents(tiny: GPVAE, waves: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpvae.report.latent.MAX_NUMBERS", 400)
    result = summary(tiny.fit(waves).impute(waves))["latent"]
    assert (result["kept"], len(result["packs"]), result["dims"]) == (4, 4, 3)
    assert result["influence"]["rows"][-2:] == ["all latent series", "nearest visible values"]
    assert sorted(result["order"]) == [0, 1, 2]


def test_report_of_shared_series(monkeypatch: pytest.MonkeyPatch) -> None:
    imputation = imputation_by_factors()
    method = cast(GPFactor, imputation.imputer)
    whole = summary(imputation)
    result, found = whole["latent"], method.findings()
    influence = result["influence"]
    assert (result["kept"], len(result["packs"]), result["dims"]) == (1, 1, len(found.latents))
    assert influence["rows"] == [*found.names, "own process", "noise"]
    assert influence["columns"] == ["a", "b", "c", "still"]
    assert [row[3] for row in influence["values"]] == [None] * len(influence["rows"])
    np.testing.assert_allclose(np.sum([row[:3] for row in influence["values"]], axis=0), 1, atol=1e-5)
    assert found.sentence in result["sentence"]
    facts = dict(whole["model"]["facts"])
    assert facts["shared latent series"] == str(len(found.latents))
    assert facts["periods"].endswith(" hours (daily)")
    assert {"time to fit", "time to fill"} <= {*facts}
    assert "parameters" not in facts
    monkeypatch.setattr("gpvae.report.latent.LATENTS_SHOWN", 1)
    influence = summary(imputation)["latent"]["influence"]
    assert influence["rows"] == [found.names[0], f"{len(found.latents) - 1} other latents", "own process", "noise"]
    np.testing.assert_allclose(np.sum([row[:3] for row in influence["values"]], axis=0), 1, atol=1e-5)


def test_report_without_latent_series() -> None:
    imputation = imputation_by_factors(shared=False)
    result = summary(imputation)["latent"]
    assert (result["dims"], result["packs"], result["order"]) == (0, [], [])
    assert result["influence"]["rows"] == ["own process", "noise"]
    assert "Found no pattern that columns share." in result["sentence"]


def test_report_of_a_method_that_holds_out_nothing() -> None:
    reason = held_out_evidence(imputation_by_factors())
    assert isinstance(reason, str)
    assert reason.startswith("GPFactor holds out no cells that could be checked. To check it, run gpvae evaluate")


def test_summary_of_training(tiny: GPVAE, waves: Any) -> None:
    imputation = tiny.fit(waves).impute(waves)
    result = summary(imputation)["training"]
    assert result["epochs"] == 6
    last = result["losses"]["validation"][-1]
    assert f"The negative log density at held-out cells is {last:.3f} after the last of 6" in result["sentence"]
    facts = dict(summary(imputation)["model"]["facts"])
    assert {"latent series", "time to fit", "time to fill", "parameters"} <= {*facts}


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([3.0, 1.0, *[-1.0] * 9, -1.001], "had levelled off"),
        ([12.0 - epoch for epoch in range(12)], "was still falling"),
        ([3.0, -1.0, *[0.0] * 10], "Later epochs were no better"),
        ([3.0, 1.0, -1.0, -1.0, -1.001], "too few epochs to tell whether more would help"),
    ],
)
def test_description_of_training(scores: list[float | None], words: str) -> None:
    sentence = describe({"validation": scores}, "error", keeps_last=False)
    assert sentence.startswith("The error at held-out cells was lowest in epoch")
    assert words in sentence
    sentence = describe({"validation": scores}, "error", keeps_last=True)
    assert sentence.startswith(
        f"The error at held-out cells is {scores[-1]:.3f} after the last of {len(scores)} epochs"
    )
    assert words.replace("Later epochs were no better", "It was lowest in epoch 2 (-1.000)") in sentence
