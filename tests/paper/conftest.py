from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_ins import IMAGE_SHAPES, STEPS, FakeExecute, made_up

from gpvae.datasets.dataset import DataSet
from gpvae.imputers import registry
from gpvae.paper.presets import changed
from gpvae.paper.reproduction import Record, driver, experiment, figures, runs, workers


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, tuple[DataSet, DataSet]]]:
    """Training and test data of every data set, with images of a few pixels."""
    sets: dict[str, tuple[DataSet, DataSet]] = {}
    for name in STEPS:
        train = made_up(name, 18, 0)
        sets[name] = train, train if name == "physionet2012" else made_up(name, 12, 1)
        if name in IMAGE_SHAPES:
            small = changed(runs.SETTINGS[name], {"model.inputs.shape": IMAGE_SHAPES[name]})
            monkeypatch.setitem(runs.SETTINGS, name, small)
    monkeypatch.setattr(experiment, "_load", lambda name, quick: sets[name])
    monkeypatch.setattr(registry.METHODS["grui-gan"].load(), "fill_steps", 3)
    experiment.prepare.cache_clear()
    yield sets
    experiment.prepare.cache_clear()


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> FakeExecute:
    """No training, no data, and figures of a few pixels."""
    execute = FakeExecute()
    monkeypatch.setattr(workers, "execute", execute)
    monkeypatch.setattr(driver, "load", lambda *_, **__: None)
    monkeypatch.setattr(figures, "DIGIT_SHAPE", (1, 2, 2))
    monkeypatch.setattr(figures, "SPRITE_SHAPE", (3, 2, 2))
    monkeypatch.setattr(figures, "VARIABLES", tuple("abcdefg"))
    return execute


class BlankFigure:
    def savefig(self, path: Path, **_: object) -> None:
        path.write_bytes(b"")


@pytest.fixture
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not drawn, which takes longer than all the rest, but their examples are read."""
    monkeypatch.setattr(figures.figures, "reconstructions", lambda *_: BlankFigure())
    monkeypatch.setattr(figures.figures, "patient", lambda *_: BlankFigure())


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "runs.csv")
