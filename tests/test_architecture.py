"""The layout of the package: imports run one way, and what reads tables knows nothing of models."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpvae

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gpvae"

# The rooms of the package: each may import only from those above it in this list, and from itself.
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
    "adapters",
    "paper",
    "demo",
    "cli",
]
# The only upward imports, made when a result is asked to show itself.
UPWARD = {("imputers", "report"), ("evaluation", "report")}
# These must not import PyTorch, so that reading a table, and rejecting a bad one, does not wait for it.
TORCH_FREE = {
    *(
        "data/times.py",
        "data/time_columns.py",
        "data/reading.py",
        "data/numerals.py",
        "data/csv_text.py",
        "data/formats.py",
        "data/sources.py",
        "data/codes.py",
        "data/frames.py",
        "data/panel.py",
        "data/atomic.py",
        "data/files.py",
        "data/gaps.py",
        "data/grid.py",
        "data/scaling.py",
    ),
    *("imputers/draws.py", "imputers/imputation.py", "evaluation/metrics.py"),
}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__"))


def room(dotted: str) -> str:
    """gpvae.imputers.simple → imputers; a name of the package itself → the highest room that defines such names."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "evaluation"


def is_torch_free(path: Path) -> bool:
    relative = path.relative_to(SOURCE)
    return str(relative) in TORCH_FREE or relative.parts[0] in ("missingness", "datasets")


def imports(path: Path) -> list[str]:
    """Every module that a file imports, also inside functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "gpvae":
            names += [f"gpvae.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, which hides where a name comes from"
            names.append(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_downward(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for name in imports(path):
        top = name.split(".")[0]
        if top == "gpvae" and room(name) != here and (here, room(name)) not in UPWARD:
            assert ROOMS.index(room(name)) < ROOMS.index(here), f"{here} imports {name}, which lies above it"
        if is_torch_free(path):
            assert top not in ("torch", "gpytorch", "lightning_fabric"), f"{path} imports {name}"


def test_upward_imports_inside_functions_are_found(tmp_path: Path) -> None:
    module = tmp_path / "panel.py"
    module.write_text(
        "def f():\n    from gpvae import GPVAE\n    from gpvae.models.config import ModelConfig\n    import torch\n"
    )
    assert sorted(imports(module)) == ["gpvae.GPVAE", "gpvae.models.config", "torch"]
    assert room("gpvae.GPVAE") == "evaluation"
    assert ROOMS.index(room("gpvae.models.config")) > ROOMS.index("data")


def test_every_module_is_in_a_room() -> None:
    assert {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in MODULES} == set(ROOMS)


def test_test_folders_are_named_after_rooms() -> None:
    folders = {path.name for path in Path(__file__).parent.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= {*ROOMS, "benchmarks"}


def test_contributing_lists_the_rooms_in_order() -> None:
    house = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## The house")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)/?` \|", house, flags=re.MULTILINE) == ROOMS


def test_the_package_has_the_names_that_it_lists_and_no_others() -> None:
    for name in gpvae.__all__:
        assert getattr(gpvae, name) is vars(gpvae)[name], name  # imported once, then kept
    assert {*gpvae._HOMES} <= {*gpvae.__all__} <= {*dir(gpvae)} - {"os", "find_spec"}
    for name in ("missingness", "data"):  # modules that are not in __all__
        assert getattr(gpvae, name) is sys.modules[f"gpvae.{name}"]
    for name in ("GPVea", "_none", "__wrapped__", "no.module"):
        with pytest.raises(AttributeError, match=f"module 'gpvae' has no attribute '{name}'"):
            getattr(gpvae, name)


def test_type_checkers_see_the_same_names() -> None:
    """The imports under TYPE_CHECKING name the modules from which names are loaded at run time."""
    declared = {
        alias.name: node.module
        for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpvae")
        for alias in node.names
    }
    assert {name: gpvae._HOMES.get(name, "gpvae") for name in gpvae.__all__} == declared


@pytest.mark.parametrize("arguments", [["--help"], ["impute", "--help"], ["impute", "none.csv", "-o", "filled.csv"]])
def test_help_and_errors_do_not_load_pytorch(arguments: list[str]) -> None:
    program = f"""
import sys
from gpvae.cli import app
try:
    app({arguments!r})
finally:
    assert not {{"torch", "sklearn"}} & {{*sys.modules}}, "loaded"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == (0 if "--help" in arguments else 1)
    assert "loaded" not in done.stderr
    assert ("there is no file none.csv" in done.stderr) == ("none.csv" in arguments)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with two saved models, conformal and linear."""
    waves = np.sin(np.arange(60.0)).reshape(1, 30, 2)
    waves[0, 3] = np.nan
    for folder, imputer in {"conformal": gpvae.Conformal(gpvae.Forward()), "linear": gpvae.Linear()}.items():
        imputer.fit(np.tile(waves, (4, 1, 1))).save(tmp_path / folder)
    return tmp_path


def run_in_new_process(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", f"import gpvae\n{program}"], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("loader", "folder", "name"),
    [
        ("gpvae.load", "conformal", "Conformal(Forward)"),
        ("gpvae.Imputer.load", "conformal", "Conformal(Forward)"),
        ("gpvae.Linear.load", "linear", "Linear"),
    ],
)
def test_a_new_process_loads_any_saved_model(saved: Path, loader: str, folder: str, name: str) -> None:
    """The class of the model has not been imported there."""
    done = run_in_new_process(f"print({loader}({str(saved / folder)!r}).name)")
    assert done.stdout.strip() == name, done.stderr


@pytest.mark.parametrize("folder", ["conformal", "linear"])
def test_a_new_process_refuses_a_saved_model_of_another_class(saved: Path, folder: str) -> None:
    assert "not a GPVAE" in run_in_new_process(f"gpvae.GPVAE.load({str(saved / folder)!r})").stderr


def test_the_papers_model_needs_nothing_of_the_default() -> None:
    """It is built and scored with the files of the default's parts out of reach."""
    program = """
import sys
sys.modules["gpvae.models.parts"] = sys.modules["gpvae.models.default"] = None  # an import of them fails
import torch
from gpvae.data.batches import Batch
from gpvae.paper.presets import PHYSIONET
model = PHYSIONET["model"].resolve(35, 0.2).build(["real"] * 35)
batch = Batch(torch.zeros(2, 48, 35), torch.ones(2, 48, 35, dtype=torch.bool), 1.0, torch.tensor([48, 40]))
noise = model.sample_noise((1, 2, 48), torch.Generator().manual_seed(0))
print(float(model.elbo(batch, batch, prior=model.prior.at(1.0), noise=noise).total))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) > 0
