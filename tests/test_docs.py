"""What the README says, done: every Python block in order, every command, with short training."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gpvae.imputer
from gpvae import cli

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and defaults that train for an instant."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpvae.imputer, "STEPS_AT_LEAST", 1)
    monkeypatch.setattr(gpvae.imputer, "EPOCHS_AT_LEAST", 1)
    return tmp_path


def run(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "gpvae"
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, f"{command}: {result.output}"


def test_commands_of_the_readme(quick: Path) -> None:
    run("gpvae demo")
    commands = [line for block in blocks("console") for line in block.splitlines() if line]
    assert len(commands) >= 4
    for command in commands:
        run(command)
    assert {path.name for path in quick.iterdir()} == {"demo", "filled.csv", "again.csv", "model"}


@pytest.mark.usefixtures("quick")
def test_python_of_the_readme() -> None:
    run("gpvae demo")
    snippets = blocks("python")
    assert len(snippets) >= 4
    names: dict[str, object] = {}
    for snippet in snippets:
        exec(
            compile(snippet.replace("epochs=100", "epochs=1"), "README.md", "exec"), names
        )  # later ones build on earlier
    assert "again" in names


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("bash")), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_files_that_the_readme_links_to_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (README.parent / link).exists(), link
