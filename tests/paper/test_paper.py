"""The paper's tables, as they were typed in."""

from gpvae import missingness, paper
from gpvae.datasets import NAMES
from gpvae.imputers import registry as methods

SIZES = {"T1": 20, "T2": 25, "T3": 8, "S4": 36, "S5": 12}


def test_every_cell_of_the_tables_is_there_once() -> None:
    assert {name: len(cells) for name, cells in paper.TABLES.items()} == SIZES
    for cells in paper.TABLES.values():
        assert len({(cell.row, cell.column) for cell in cells}) == len(cells)


def test_tasks_can_be_run() -> None:
    for cell in [cell for cells in paper.TABLES.values() for cell in cells]:
        assert cell.task.data in NAMES
        assert cell.task.gaps in missingness.MECHANISMS
        assert cell.task.method.removesuffix(", RBF") in methods.NAMES
        assert 0 < cell.task.rate < 1


def test_numbers_that_stand_in_two_tables_agree() -> None:
    """The same task and measure has the same number wherever it is printed."""
    seen: dict[object, paper.Published | None] = {}
    for name in ("T1", "T2"):
        for cell in paper.TABLES[name]:
            assert seen.setdefault((cell.task, cell.measure), cell.published) == cell.published
    assert paper.TABLES["T1"][16].published == (0.350, 0.007)


def test_the_paper_says_that_its_model_is_best() -> None:
    """In every row of T2, S4 and S5 its number is the smallest: a slip of the finger would show."""
    for name in ("T2", "S4", "S5"):
        rows: dict[str, dict[str, float]] = {}
        for cell in paper.TABLES[name]:
            assert cell.published
            rows.setdefault(cell.row, {})[cell.column] = cell.published.value
        for row in rows.values():
            assert min(row, key=lambda column, row=row: row[column]) == "GP-VAE"
