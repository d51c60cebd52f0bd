"""What the README and the pages say, done: every Python block in order, every command, with short training."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gpvae.imputers.neural
from gpvae import cli

README = Path(__file__).parents[1] / "README.md"
METHODS = README.parent / "docs" / "methods.md"
PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and defaults that train for an instant."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpvae.imputers.neural, "STEPS_AT_LEAST", 1)
    monkeypatch.setattr(gpvae.imputers.neural, "STEPS_ANNEALED", 1)
    monkeypatch.setattr(gpvae.imputers.neural, "EPOCHS_AT_LEAST", 1)
    return tmp_path


def run(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "gpvae"
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, f"{command}: {result.output}"


@pytest.mark.parametrize(
    ("page", "written"),
    [
        (README, {"filled.csv", "again.csv", "model", "shown.csv", "report.html", "judged.html"}),
        (METHODS, {"brits.csv"}),
    ],
    ids=lambda each: each.stem if isinstance(each, Path) else "",
)
def test_commands(quick: Path, page: Path, written: set[str]) -> None:
    run("gpvae demo")
    for command in [line for block in blocks(page, "console") for line in block.splitlines() if line]:
        run(command)
    assert {path.name for path in quick.iterdir()} == {"demo", *written}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("page", "last"), [(README, "again"), (METHODS, "filled")], ids=["README", "methods"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_python(page: Path, last: str) -> None:
    run("gpvae demo")
    names: dict[str, object] = {}
    for snippet in blocks(page, "python"):  # later ones build on earlier
        exec(compile(snippet.replace("epochs=100", "epochs=1"), page.name, "exec"), names)
    assert last in names


def test_no_page_with_code_goes_untried() -> None:
    tried = {README, METHODS}
    assert {page for page in PAGES if blocks(page, "python") or blocks(page, "console")} == tried


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "\n".join(blocks(README, "bash")), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link
