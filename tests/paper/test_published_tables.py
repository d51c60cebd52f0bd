"""The paper's tables, as they were typed in."""

from gpvae import missingness
from gpvae.datasets import NAMES
from gpvae.imputers import registry
from gpvae.paper.tables import TABLES, Estimate

SIZES = {"T1": 20, "T2": 30, "T3": 44, "S4": 36, "S5": 12, "smoothness": 10}


def test_the_tables_have_every_cell_once() -> None:
    assert {name: len(cells) for name, cells in TABLES.items()} == SIZES
    for cells in TABLES.values():
        assert len({(cell.row, cell.column) for cell in cells}) == len(cells)


def test_every_task_can_be_run() -> None:
    for cell in [cell for cells in TABLES.values() for cell in cells]:
        assert cell.task.data in NAMES
        assert cell.task.mechanism in missingness.MECHANISMS
        assert cell.task.method.partition(",")[0] in registry.METHODS
        assert 0 < cell.task.rate < 1


def test_numbers_printed_in_two_tables_agree() -> None:
    seen: dict[object, Estimate | None] = {}
    for name in ("T1", "T2"):
        for cell in TABLES[name]:
            assert seen.setdefault((cell.task, cell.measure), cell.published) == cell.published
    assert TABLES["T1"][16].published == (0.350, 0.007)


def test_gp_vae_is_the_best_in_every_row() -> None:
    """The paper says so of T2, S4 and S5; a typing error would probably break it."""
    for name in ("T2", "S4", "S5"):
        rows: dict[str, dict[str, float]] = {}
        for cell in TABLES[name]:
            if not cell.published:  # mean imputation, rounded
                continue
            rows.setdefault(cell.row, {})[cell.column] = cell.published.value
        for row in rows.values():
            assert min(row, key=lambda column, row=row: row[column]) == "GP-VAE"
