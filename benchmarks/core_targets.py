"""The targets of the core, and which of them results/core.csv, core_rows.csv, core_dfm.csv and protocols.csv meet.

Seeds are averaged before errors are compared. A coverage meets its band if its bootstrap interval does; one without an
interval (a single outage) is not judged.
"""

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from core_tables import EXACT, P4

Record = dict[str, str]
CELL_BAND, GAP_BAND, ROUGHNESS = (0.87, 0.93), (0.85, 0.95), (0.9, 1.15)
RUNS = ("runs", "one column out")
LONG = "outages of 64"
VERDICT = {True: "met", False: "missed", None: "not measured"}


class Target(NamedTuple):
    what: str
    target: str
    measured: str
    met: bool | None  # None: not measured


class Ratio(NamedTuple):
    """The method's error divided by another's, in one table and pattern."""

    value: float
    table: str
    pattern: str


@dataclass(frozen=True)
class Results:
    """The rows of one method and of those it is compared with."""

    rows: Sequence[Record]
    name: str
    label: str

    def of(self, method: str, *, tables: Iterable[str] | None = None, pattern: str = "") -> list[Record]:
        label = self.label if method == self.name else ""
        chosen = [row for row in self.rows if row["method"] == method and row["label"] == label]
        return [r for r in chosen if (tables is None or r["table"] in tables) and pattern in ("", r["pattern"])]

    def errors(self, method: str) -> dict[tuple[str, str], float]:
        """The mean absolute error by table and pattern, over the seeds that the method has."""
        found = dict[tuple[str, str], list[float]]()
        for row in self.of(method):
            found.setdefault((row["table"], row["pattern"]), []).append(float(row["mae"]))
        return {at: sum(errors) / len(errors) for at, errors in found.items()}

    def ratios(self, *others: str) -> list[Ratio]:
        """To the best of the others, where all of them were measured."""
        theirs = [self.errors(other) for other in others]
        return [
            Ratio(error / min(each[at] for each in theirs), *at)
            for at, error in self.errors(self.name).items()
            if all(at in each for each in theirs)
        ]


def read(path: Path, **wanted: Collection[str]) -> list[Record]:
    """The rows of a CSV whose columns have one of the values wanted."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[name] in values for name, values in wanted.items())]


def at_most(what: str, limit: float, ratios: Sequence[Ratio], *, strict: bool = False) -> Target:
    """No ratio is above the limit; the worst is named."""
    target = f"{'<' if strict else '<='} {limit:g}"
    if not ratios:
        return Target(what, target, "", None)
    fails = sum(ratio.value >= limit if strict else ratio.value > limit for ratio in ratios)
    worst, table, pattern = max(ratios)
    return Target(what, target, f"{worst:.3f} ({table}, {pattern}); {counted(fails, ratios)}", not fails)


def counted(fails: int, judged: Sequence[object]) -> str:
    return f"{len(judged) - fails} of {len(judged)} meet it"


def in_band(what: str, rows: Sequence[Record], column: str, band: tuple[float, float]) -> Target:
    """Every bootstrap interval meets the band; the value furthest from it is named."""
    target, judged = f"{band[0]:.0%} to {band[1]:.0%}", [row for row in rows if row[f"{column}_lo"]]
    if not judged:
        return Target(what, target, "", None)
    fails = [r for r in judged if float(r[f"{column}_hi"]) < band[0] or float(r[f"{column}_lo"]) > band[1]]
    worst = max(fails or judged, key=lambda row: abs(float(row[column]) - sum(band) / 2))
    where = f"{float(worst[column]):.1%} ({worst['table']}, {worst['pattern']}, seed {worst['seed']})"
    return Target(what, target, f"{where}; {counted(len(fails), judged)}", not fails)


def seconds(results: Results) -> Target:
    rows = results.of(results.name, tables=["air_quality"])
    if not rows:
        return Target("seconds, UCI air, fit and fill", "<= 10", "", None)
    slowest = max(rows, key=_total)
    total = _total(slowest)
    return Target("seconds, UCI air, fit and fill", "<= 10", f"{total:.2f} ({slowest['pattern']})", total <= 10)


def cost_per_row(results: Results, rows: Sequence[Record]) -> Iterator[Target]:
    own = {int(row["rows"]): row for row in rows if row["method"] == results.name}
    costs = {length: float(row["microseconds_per_row"]) for length, row in own.items()}
    spread = max(costs.values()) / min(costs.values()) if len(costs) > 1 else None
    shown = ", ".join(f"{length:,}: {cost:.0f} µs" for length, cost in costs.items())
    measured = f"{spread:.2f} ({shown})" if spread else ""
    yield Target("cost per row, dearest / cheapest", "<= 1.25", measured, _most(spread, 1.25))
    memory = float(own[1_000_000]["peak_memory_gb"]) if 1_000_000 in own else None
    yield Target("GB at 1,000,000 x 8", "<= 3", f"{memory:.2f}" if memory else "", _most(memory, 3))


def _most(value: float | None, limit: float) -> bool | None:
    return None if value is None else value <= limit


def errors(results: Results, physionet: Results) -> Iterator[Target]:
    linear, iterative = results.ratios("linear"), [r for r in results.ratios("iterative") if r.pattern in RUNS]
    in_p4 = [ratio for ratio in linear if ratio.table in P4]
    yield at_most("error / linear, P4 and P2", 1.02, [*in_p4, *physionet.ratios("linear")])
    yield at_most("error / linear, P4, runs", 0.5, [ratio for ratio in in_p4 if ratio.pattern == "runs"])
    inexact = [ratio for ratio in iterative if ratio.table not in EXACT]
    for pattern in RUNS:
        of_pattern = [ratio for ratio in inexact if ratio.pattern == pattern]
        yield at_most(f"error / iterative, {pattern}", 1, of_pattern, strict=True)
    yield at_most("error / iterative, both, exact relations", 2, [r for r in iterative if r.table in EXACT])
    long = [ratio for ratio in results.ratios("linear", "seasonal naive") if ratio.pattern == LONG]
    yield at_most("error / best of linear and season, 10 x 64", 1, long)


def coverages(results: Results) -> Iterator[Target]:
    rows = results.of(results.name, tables=P4)
    yield in_band("90 % interval of cells, P4", rows, "coverage_90", CELL_BAND)
    yield in_band("90 % interval of a gap's mean, P4", rows, "mean_coverage", GAP_BAND)
    yield in_band("90 % interval of a gap's maximum, P4", rows, "max_coverage", GAP_BAND)
    yield in_band("90 % interval of cells, 10 x 64", results.of(results.name, pattern=LONG), "coverage_90", CELL_BAND)


def roughness(results: Results) -> Target:
    what, target = "roughness of draws, P4", f"{ROUGHNESS[0]} to {ROUGHNESS[1]}"
    values = [float(row["roughness"]) for row in results.of(results.name, tables=P4) if row["roughness"]]
    if not values:
        return Target(what, target, "", None)
    fails = sum(not ROUGHNESS[0] <= value <= ROUGHNESS[1] for value in values)
    return Target(what, target, f"{min(values):.2f} to {max(values):.2f}; {counted(fails, values)}", not fails)


def dynamic_factors(results: Results, rows: Sequence[Record]) -> Iterator[Target]:
    """Against the better of its numbers of factors, and the quicker."""
    for table in dict.fromkeys(row["table"] for row in rows):
        own, *theirs = sorted((r for r in rows if r["table"] == table), key=lambda r: r["method"] != results.name)
        if own["method"] == results.name and theirs:
            density, best = float(own["log_density"]), max(float(row["log_density"]) for row in theirs)
            yield Target(f"log density, {table}", f">= {best:.3f} (DynamicFactorMQ)", f"{density:.3f}", density >= best)
            quickest, total = min(map(_total, theirs)), _total(own)
            shown = f"{quickest / total:.1f} ({total:.2f} s, {quickest:.2f} s)"
            yield Target(f"times as fast, {table}", ">= 20", shown, quickest >= 20 * total)


def _total(row: Record) -> float:
    return float(row["fit_seconds"]) + float(row["impute_seconds"])


def all_targets(results: Results, folder: Path) -> list[Target]:
    physionet = [row | {"table": "P2"} for row in read(folder / "protocols.csv", protocol=["P2"], small=[""])]
    return [
        seconds(results),
        *cost_per_row(results, read(folder / "core_rows.csv")),
        *errors(results, Results(physionet, results.name, results.label)),
        *coverages(results),
        roughness(results),
        *dynamic_factors(results, read(folder / "core_dfm.csv")),
    ]


def print_summary(results: Results, folder: Path) -> None:
    """As a table in Markdown."""
    print(f"| {results.name} | target | measured | |\n|---|---|---|---|")
    for target in all_targets(results, folder):
        print("|", " | ".join([*target[:3], VERDICT[target.met]]), "|")
