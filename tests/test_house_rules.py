"""Limits on the size of functions, files and classes in src, so that each can be read in one sitting."""

import ast
import statistics
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "gpvae"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST_FUNCTION, MEDIAN_FUNCTION, LONGEST_FILE, MOST_FIELDS = 45, 5, 450, 15

Function = ast.FunctionDef | ast.AsyncFunctionDef
in_every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))


def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, Function)]


def has_triton_kernels(path: Path) -> bool:
    """Those cannot be split into short functions."""
    return path.relative_to(SOURCE).parts[0] in ("gp", "models") and "@triton.jit" in path.read_text(encoding="utf-8")


def length(function: Function) -> int:
    """Lines of the body, with the docstring; commands have an option on each line of their signature."""
    assert function.end_lineno
    return function.end_lineno - function.body[0].lineno + 1


def fields(definition: ast.ClassDef) -> list[str]:
    """The annotated names in the body of a class."""
    return [ast.unparse(node.target) for node in definition.body if isinstance(node, ast.AnnAssign)]


@in_every_file
def test_functions_are_short(path: Path) -> None:
    limit = float("inf") if has_triton_kernels(path) else LONGEST_FUNCTION
    assert {node.name: length(node) for node in functions(path) if length(node) > limit} == {}


def test_most_functions_have_a_few_lines() -> None:
    lengths = [length(node) for path in FILES for node in functions(path)]
    assert statistics.median(lengths) <= MEDIAN_FUNCTION


@in_every_file
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


@in_every_file
def test_classes_have_few_fields(path: Path) -> None:
    classes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    assert {node.name: len(fields(node)) for node in classes if len(fields(node)) > MOST_FIELDS} == {}


def test_the_measures_see_what_they_should(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        'class A:\n    x: int\n    y: int = 1\n    z = 2\n\n    async def f(self):\n        """Two\n        lines."""\n'
        "        def inner():\n            return 1\n\n        return inner\n"
    )
    assert {node.name: length(node) for node in functions(module)} == {"f": 6, "inner": 1}
    (definition,) = (node for node in ast.parse(module.read_text()).body if isinstance(node, ast.ClassDef))
    assert fields(definition) == ["x", "y"]
