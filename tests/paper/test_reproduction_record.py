"""The record of runs: found again, replaced, averaged, never half written."""

import errno
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from stand_ins import task

from gpvae import DataError
from gpvae.paper.reproduction import Record, Run, reproduce, workers
from gpvae.paper.tables import Estimate

A_RUN = Run(task("physionet2012", "brits"), 0)


@pytest.mark.parametrize(
    "other",
    [
        replace(A_RUN, seed=1),
        replace(A_RUN, changes=1),
        replace(A_RUN, quick=True),
        replace(A_RUN, task=replace(A_RUN.task, rate=0.2)),
        replace(A_RUN, task=replace(A_RUN.task, mechanism="spatial")),
        replace(A_RUN, task=replace(A_RUN.task, method="gp")),
        replace(A_RUN, task=replace(A_RUN.task, data="sprites")),
    ],
    ids=str,
)
def test_a_run_is_found_and_no_other(other: Run, record: Record) -> None:
    assert record.rows() == []
    record.add(A_RUN, {"auroc": 0.75}, {"commit": "abc"})
    assert record.has(A_RUN)
    assert not record.has(other)


def test_a_run_is_replaced_and_the_others_stay(record: Record) -> None:
    record.add(A_RUN, {"mse": 1 / 3, "auroc": 0.75}, {"commit": "abc"})
    record.add(replace(A_RUN, seed=1), {"mse": 2.0, "auroc": 0.5}, {"commit": "abc"})
    before = record.rows()
    record.add(replace(A_RUN, seed=1), {"mse": 3.0, "nll": 1e-7}, {"commit": "d,\ne"})
    first, second = record.rows()
    assert {**before[0], "nll": ""} == first
    assert first["mse"] == "0.333333"
    assert (second["mse"], second["nll"], second["auroc"], second["commit"]) == ("3", "1e-07", "", "d,\ne")
    assert (second["seed"], second["size"], second["method"]) == ("1", "full", "brits")


def test_average_over_the_seeds(record: Record) -> None:
    assert record.average(A_RUN, "auroc") is None
    record.add(A_RUN, {"auroc": 0.70}, {})
    of_one = record.average(A_RUN, "auroc")
    assert of_one is not None
    assert of_one.value == 0.70
    assert math.isnan(of_one.error)
    for seed, value in ((1, 0.76), (2, 0.73)):
        record.add(replace(A_RUN, seed=seed), {"auroc": value}, {})
    record.add(replace(A_RUN, seed=3), {"mse": 9.0}, {})  # not measured does not count as zero
    for other in (replace(A_RUN, changes=1), replace(A_RUN, quick=True)):
        record.add(other, {"auroc": 0.1}, {})
    assert record.average(replace(A_RUN, seed=2), "auroc") == pytest.approx(Estimate(0.73, 0.03 / math.sqrt(3)))
    assert record.average(A_RUN, "nll") is None


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "a,b\n1,2,3\n", "a,b\n", "no table at all"])
def test_a_file_that_is_no_record_is_refused_and_kept(
    record: Record, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.path.write_text(text)
    with pytest.raises(DataError, match=r"runs.csv is not a record of runs: it has the columns "):
        record.add(A_RUN, {"auroc": 0.5}, {})
    monkeypatch.setattr(workers, "execute", lambda *_, **__: pytest.fail("a run was made"))
    with pytest.raises(DataError, match=r"runs.csv is not a record of runs"):
        reproduce(["T3"], record.path.parent)
    assert record.path.read_text() == text


def test_a_failed_write_leaves_the_record_as_it_was(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    record.add(A_RUN, {"auroc": 0.75}, {})
    before = record.path.read_bytes()

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gpvae.data.atomic.os.replace", full)
    with pytest.raises(DataError, match="No space left on device; nothing was changed"):
        record.add(replace(A_RUN, seed=1), {"auroc": 0.5}, {})
    assert record.path.read_bytes() == before
    assert [path.name for path in record.path.parent.iterdir()] == ["runs.csv"]
