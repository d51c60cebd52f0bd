"""What the paper's AUROC can tell: `python benchmarks/auroc.py`, with the data in the folder that GPVAE_DATA names.

Healing MNIST: the classifier on the true frames, which no imputation can be expected to beat. PhysioNet: mean, forward
and linear imputation, over other divisions of the patients into halves, and with other strengths of regularisation (1
is the paper's; smaller is stronger).
"""

import argparse
from pathlib import Path

import numpy as np
import provenance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from gpvae import missingness, paper
from gpvae.datasets import load
from gpvae.imputers.registry import method
from gpvae.paper.reproduction.runs import auroc, gaps

Row = dict[str, object]
DIVISIONS = 20


def ceiling() -> Row:
    data = load("healing_mnist", splits=["test"])
    assert data.labels is not None
    found = auroc(data.truth.reshape(len(data.panel), -1), data.labels)
    return {"data": "Healing MNIST", "imputed by": "nothing: the truth", "what": "as in the paper", "auroc": found}


def patients() -> list[Row]:
    data, task = load("physionet2012", splits=["train"]), paper.LADDERS[-1]
    assert data.labels is not None
    visible = missingness.hide(data.panel, gaps(data, task.gaps, task.rate, [0, 0]))
    orders = [np.random.default_rng(i).permutation(len(data.panel)) for i in range(DIVISIONS)]
    rows: list[Row] = []
    for name in ("mean", "forward", "linear"):
        filled = method(name).fit(visible).impute(visible).mean_rows
        scaled = (filled - np.nanmean(data.truth, 0)) / np.nanstd(data.truth, 0)
        series, about = scaled.reshape(len(data.panel), -1), {"data": "PhysioNet set a", "imputed by": name}
        rows.append({**about, "what": "as in the paper", "auroc": auroc(series, data.labels)})
        others = [auroc(series[order], data.labels[order]) for order in orders]
        rows.append({**about, "what": f"mean over {DIVISIONS} other divisions into halves", "auroc": np.mean(others)})
        rows.append({**about, "what": "standard deviation over those", "auroc": np.std(others, ddof=1)})
        half = len(series) // 2
        for strength in (0.1, 0.01, 0.001):
            model = LogisticRegression(solver="liblinear", C=strength, max_iter=10_000)
            scores = model.fit(series[:half], data.labels[:half]).predict_proba(series[half:])[:, 1]
            rows.append({**about, "what": f"C = {strength}", "auroc": roc_auc_score(data.labels[half:], scores)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=provenance.ROOT / "results" / "auroc.csv")
    options = parser.parse_args()
    rows = [ceiling(), *patients()]
    for row in rows:
        row["auroc"] = f"{row['auroc']:.4f}"
        print(*row.values(), sep="  ")
    provenance.write(options.output, rows)


if __name__ == "__main__":
    main()
