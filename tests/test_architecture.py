"""The house: imports run one way, and what stands at the border has never heard of a model."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpvae

SOURCE = Path(__file__).parents[1] / "src" / "gpvae"

# The rooms of the house: each may import only from those above it in this list, and from itself.
ROOMS = [
    "data",
    "missingness",
    "datasets",
    "gp",
    "models",
    "training",
    "imputers",
    "evaluation",
    "report",
    "paper",
    "demo",
    "cli",
]
# Results show themselves: a door up to the report, opened only when it is asked for.
DOORS = {("imputers", "report"), ("evaluation", "report")}
# What answers before PyTorch is loaded: reading a table, and everything that may go wrong with it.
TORCH_FREE = {
    *("data/times.py", "data/frames.py", "data/panel.py", "data/files.py", "data/scaling.py"),
    *("imputers/imputation.py", "evaluation/metrics.py"),
}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__"))


def room(dotted: str) -> str:
    """gpvae.imputers.simple → imputers; a name of the package itself → the highest room that it may come from."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "evaluation"


def is_torch_free(path: Path) -> bool:
    relative = path.relative_to(SOURCE)
    return str(relative) in TORCH_FREE or relative.parts[0] in ("missingness", "datasets")


def imports(path: Path) -> list[str]:
    """Every module imported anywhere in a file, inside functions too."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "gpvae":
            found += [f"gpvae.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            found.append(node.module or "")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_downward(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for name in imports(path):
        top = name.split(".")[0]
        if top == "gpvae" and room(name) != here and (here, room(name)) not in DOORS:
            assert ROOMS.index(room(name)) < ROOMS.index(here), f"{here} climbs to {name}"
        if is_torch_free(path):
            assert top not in ("torch", "gpytorch", "lightning_fabric"), f"{path} imports {name}"


def test_a_climb_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "panel.py"
    wrong.write_text(
        "def f():\n    from gpvae import GPVAE\n    from gpvae.models.model import Model\n    import torch\n"
    )
    assert sorted(imports(wrong)) == ["gpvae.GPVAE", "gpvae.models.model", "torch"]
    assert room("gpvae.GPVAE") == "evaluation"
    assert ROOMS.index(room("gpvae.models.model")) > ROOMS.index("data")


def test_every_module_has_its_room() -> None:
    assert {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in MODULES} == set(ROOMS)


def test_tests_stand_in_the_rooms_of_what_they_test() -> None:
    folders = {path.name for path in Path(__file__).parent.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= {*ROOMS, "benchmarks"}


def test_what_the_package_names_is_there_and_nothing_else() -> None:
    for name in gpvae.__all__:
        assert getattr(gpvae, name) is vars(gpvae)[name], name  # found once, kept
    assert {*gpvae._HOMES} <= {*gpvae.__all__} <= {*dir(gpvae)} - {"os", "find_spec"}
    for name in ("missingness", "data"):  # modules that it does not name
        assert getattr(gpvae, name) is sys.modules[f"gpvae.{name}"]
    for name in ("GPVea", "_none", "__wrapped__", "no.module"):
        with pytest.raises(AttributeError, match=f"module 'gpvae' has no attribute '{name}'"):
            getattr(gpvae, name)


def test_type_checkers_are_told_the_same_names() -> None:
    """Those under TYPE_CHECKING, each from the module where it is looked for."""
    told = {
        alias.name: node.module
        for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpvae")
        for alias in node.names
    }
    assert {name: gpvae._HOMES.get(name, "gpvae") for name in gpvae.__all__} == told


@pytest.mark.parametrize("words", [["--help"], ["impute", "--help"], ["impute", "none.csv", "-o", "filled.csv"]])
def test_short_answers_do_not_wait_for_pytorch(words: list[str]) -> None:
    program = f"""
import sys
from gpvae.cli import app
try:
    app({words!r})
finally:
    assert not {{"torch", "sklearn"}} & {{*sys.modules}}, "loaded"
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == (0 if "--help" in words else 1)
    assert "loaded" not in found.stderr
    assert ("there is no file none.csv" in found.stderr) == ("none.csv" in words)


@pytest.mark.parametrize("name", ["gpvae.load", "gpvae.Imputer.load", "gpvae.Linear.load"])
def test_a_new_process_reads_any_saved_model(name: str, tmp_path: Path) -> None:
    """Though nothing of its sort is imported there yet."""
    waves = np.sin(np.arange(60.0)).reshape(1, 30, 2)
    waves[0, 3] = np.nan
    for folder, made in {"conformal": gpvae.Conformal(gpvae.Forward()), "linear": gpvae.Linear()}.items():
        made.fit(np.tile(waves, (4, 1, 1))).save(tmp_path / folder)
    folder = tmp_path / ("linear" if "Linear" in name else "conformal")
    words = [sys.executable, "-c", f"import gpvae; print({name}({str(folder)!r}).name)"]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.stdout.strip() == ("Linear" if "Linear" in name else "Conformal(Forward)"), found.stderr
    wrong = subprocess.run(
        [*words[:2], f"import gpvae; gpvae.GPVAE.load({str(folder)!r})"], capture_output=True, text=True
    )
    assert "not a GPVAE" in wrong.stderr
