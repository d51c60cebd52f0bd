"""Runs every code cell of the notebooks in `examples/`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpvae.training import factor

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def cells(notebook: Path) -> list[dict[str, Any]]:
    return json.loads(notebook.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("notebook", EXAMPLES, ids=lambda path: path.stem)
def test_cells_run(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(factor, "STEPS", 30)
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells(notebook)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == set()


@pytest.mark.parametrize("notebook", EXAMPLES, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_results(notebook: Path) -> None:
    code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_readme_of_the_examples_lists_them() -> None:
    listed = re.findall(r"\]\((\w+\.ipynb)\)", (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [path.name for path in EXAMPLES]
