"""The house: imports run one way, and what stands at the border has never heard of a model."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "gpvae"

# Each module may import only those above it in this list.
ORDER = [
    "times",
    "sources",
    "panel",
    "missingness",
    "metrics",
    "scaling",
    "imputation",
    "files",
    "datasets",
    "batches",
    "schema",
    "linalg",
    "kernels",
    "distributions",
    "networks",
    "practice",
    "model",
    "muon",
    "training",
    "imputer",
    "trained",
    "judge",
    "latent",
    "baselines",
    "conformal",
    "methods",
    "evaluation",
    "paper",
    "provenance",
    "report",
    "reproduction",
    "demo",
    "cli",
]
# Results show themselves: a door up to the report, opened only when it is asked for.
DOORS = {("imputation", "gpvae.report"), ("evaluation", "gpvae.report")}
WITHOUT_TORCH = {"times", "sources", "panel", "missingness", "metrics", "scaling", "imputation", "files", "datasets"}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__"))


def room(dotted: str) -> str:
    """gpvae.baselines.simple → baselines; a name of the package itself → the highest that it is made of."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ORDER else "conformal"


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
        through_a_door = (here, ".".join(name.split(".")[:2])) in DOORS
        if name.split(".")[0] == "gpvae" and room(name) != here and not through_a_door:
            assert ORDER.index(room(name)) < ORDER.index(here), f"{here} climbs to {name}"
        if here in WITHOUT_TORCH:
            assert name.split(".")[0] not in ("torch", "gpytorch", "lightning_fabric"), f"{here} imports {name}"


def test_a_climb_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "panel.py"
    wrong.write_text(
        "def f():\n    from gpvae import GPVAE\n    from gpvae.model import LatentModel\n    import torch\n"
    )
    assert sorted(imports(wrong)) == ["gpvae.GPVAE", "gpvae.model", "torch"]
    assert room("gpvae.GPVAE") == "conformal"
    assert ORDER.index(room("gpvae.model")) > ORDER.index("panel")


def test_every_module_has_its_place() -> None:
    assert {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in MODULES} == set(ORDER)
