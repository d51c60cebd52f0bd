"""How much the paper's AUROC can tell: `python benchmarks/auroc.py`, with the data in the folder that GPVAE_DATA names.

Healing MNIST: the classifier on the true frames, an upper bound for any imputation. PhysioNet: mean, forward and linear
imputation, over other divisions of the patients into halves, and with other strengths of regularisation (the paper has
C = 1; smaller is stronger).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import provenance
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from gpvae import missingness
from gpvae.datasets import load
from gpvae.imputers.registry import method
from gpvae.paper.reproduction.experiment import gaps
from gpvae.paper.reproduction.scores import auroc

Row = dict[str, object]
DIVISIONS = 20


def upper_bound() -> Row:
    data = load("healing_mnist", splits=["test"])
    assert data.labels is not None
    value = auroc(data.truth.reshape(len(data.panel), -1), data.labels)
    return {"data": "Healing MNIST", "imputed by": "nothing: the truth", "what": "as in the paper", "auroc": value}


def patients() -> Iterator[Row]:
    data = load("physionet2012", splits=["train"])
    assert data.labels is not None
    visible = missingness.hide(data.panel, gaps(data, "random", 0.1, [0, 0]))
    for name in ("mean", "forward", "linear"):
        filled = method(name).fit(visible).impute(visible).mean_rows
        scaled = (filled - np.nanmean(data.truth, 0)) / np.nanstd(data.truth, 0)
        for what, value in aurocs(scaled.reshape(len(data.panel), -1), data.labels).items():
            yield {"data": "PhysioNet set a", "imputed by": name, "what": what, "auroc": value}


def aurocs(series: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:
    orders = [np.random.default_rng(i).permutation(len(series)) for i in range(DIVISIONS)]
    others = [auroc(series[order], labels[order]) for order in orders]
    values = {
        "as in the paper": auroc(series, labels),
        f"mean over {DIVISIONS} other divisions into halves": float(np.mean(others)),
        "standard deviation over those": float(np.std(others, ddof=1)),
    }
    half = len(series) // 2
    for c in (0.1, 0.01, 0.001):
        model = LogisticRegression(solver="liblinear", C=c, max_iter=10_000).fit(series[:half], labels[:half])
        values[f"C = {c}"] = float(roc_auc_score(labels[half:], model.predict_proba(series[half:])[:, 1]))
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=provenance.ROOT / "results" / "auroc.csv")
    options = parser.parse_args()
    rows = [{**row, "auroc": f"{row['auroc']:.4f}"} for row in (upper_bound(), *patients())]
    for row in rows:
        print(*row.values(), sep="  ")
    provenance.write(options.output, rows)


if __name__ == "__main__":
    main()
