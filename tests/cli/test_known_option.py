"""`--known`: columns to learn from, not to fill."""

from pathlib import Path

import numpy as np
from commands import Run, cells


def prices(path: str) -> None:
    """What is sold at a price, with a week that lacks it."""
    rng = np.random.default_rng(0)
    price = rng.normal(size=200).round(2)
    sold = ["" if 90 <= i < 97 else f"{10 - 3 * each:.2f}" for i, each in enumerate(price)]
    rows = (f"{i},{each},{other},{rng.normal():.2f}\n" for i, (each, other) in enumerate(zip(price, sold, strict=True)))
    Path(path).write_text("day,price,sold,noise\n" + "".join(rows))


def test_known_columns_help_and_have_no_intervals(run: Run) -> None:
    prices("shop.csv")
    result = run("impute", "shop.csv", "--time", "day", "--columns", "sold", "--known", "price", "-o", "filled.csv")
    assert result.exit_code == 0, result.output
    header, *rows = cells(Path("filled.csv"))
    assert header == ["day", "price", "sold", "noise", "sold_lower", "sold_upper"]
    for row in rows[90:97]:
        assert abs(float(row[2]) - (10 - 3 * float(row[1]))) < 0.5


def test_evaluate_hides_none_of_them(run: Run) -> None:
    prices("shop.csv")
    words = (
        "evaluate",
        "shop.csv",
        "--time",
        "day",
        "--known",
        "price,noise",
        "--methods",
        "linear,gp-factor",
        "--hold-out",
        "0.3",
    )
    result = run(*words)
    assert result.exit_code == 0, result.output
    table = [line.split() for line in result.output.splitlines() if "│" in line]
    error = {row[1]: float(row[3]) for row in table[-3:-1]}
    assert error["gp-factor"] < 0.05 * error["linear"]


def test_methods_that_cannot_know_say_so(run: Run) -> None:
    prices("shop.csv")
    result = run("impute", "shop.csv", "--time", "day", "--known", "price", "--method", "linear", "-o", "filled.csv")
    assert result.exit_code == 1
    assert "--known works only with gp-factor and gp-net, not with linear" in result.output
    result = run("impute", "shop.csv", "--time", "day", "--known", "sold", "-o", "filled.csv")
    assert result.exit_code == 1
    assert "column 'sold' is known, so it must have no gap, but it is empty at day 90, row 91;" in result.output
    assert not Path("filled.csv").exists()
