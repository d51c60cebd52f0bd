"""The digest depends on what a run means, not on what its settings are called."""

from copy import deepcopy
from dataclasses import replace

import pytest
from stand_ins import task

from gpvae.paper.reproduction import Run, gaps, meaning

RUN = Run(task("healing_mnist", "gp-vae"), 0)


def test_a_renamed_setting_keeps_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = deepcopy(RUN.settings)
    settings["settings"]["recipe"]["gradient_norm"] = settings["settings"]["recipe"].pop("clip_norm")
    assert meaning.digest_of(settings) != RUN.digest
    monkeypatch.setattr(
        meaning, "RENAMED", {"settings.recipe.gradient_norm": "settings.recipe.clip_norm", **meaning.RENAMED}
    )
    assert meaning.digest_of(settings) == RUN.digest


def test_a_new_setting_keeps_the_digest_with_its_neutral_value_only(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = deepcopy(RUN.settings)
    settings["settings"]["model"]["dropout"] = 0.0
    assert meaning.digest_of(settings) != RUN.digest
    monkeypatch.setattr(meaning, "NEUTRAL", {"settings.model.dropout": 0.0, **meaning.NEUTRAL})
    assert meaning.digest_of(settings) == RUN.digest
    settings["settings"]["model"]["dropout"] = 0.5
    assert meaning.digest_of(settings) != RUN.digest


def test_order_does_not_matter() -> None:
    assert meaning.digest_of(dict(reversed(RUN.settings.items()))) == RUN.digest


def test_gaps_and_rotations_are_part_of_the_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the runs that they concern."""
    random = replace(RUN, task=replace(RUN.task, mechanism="random"))
    before = RUN.digest, random.digest
    monkeypatch.setattr(gaps, "WHITE", 0.9)
    assert replace(RUN).digest != before[0]
    assert replace(random).digest == before[1]
    monkeypatch.setattr(gaps, "DEGREES", 22.0)
    assert replace(random).digest != before[1]
