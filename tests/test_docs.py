"""Runs every Python block and every command of the README and the docs, with short training."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gpvae
from gpvae import cli
from gpvae.training import recipe

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
METHODS = DOCS / "methods.md"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
TEXTS = [*PAGES, README.parent / "CONTRIBUTING.md", README.parent / "CHANGELOG.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and defaults that train for one step."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipe, "MIN_STEPS", 1)
    monkeypatch.setattr(recipe, "ANNEALED_STEPS", 1)
    monkeypatch.setattr(recipe, "MIN_EPOCHS", 1)
    return tmp_path


def run(command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "gpvae"
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, f"{command}: {result.output}"


# What the commands of a page write, besides the demonstration.
WRITTEN: dict[Path, set[str]] = {
    README: {
        *("filled.csv", "again.csv", "model", "shown.csv", "report.html", "judged.html"),
        *("past.csv", "joint.csv", "draws.parquet"),
    },
    METHODS: {"brits.csv"},
    DOCS / "tutorial.md": set(),
}
# A name that the last snippet of a page defines.
LAST = {
    README: "again",
    METHODS: "filled",
    DOCS / "index.md": "gaps",
    DOCS / "tutorial.md": "gaps",
    DOCS / "scikit-learn.md": "best",
    DOCS / "other-libraries.md": "complete",
    DOCS / "researcher.md": "score",
    DOCS / "how-to.md": "hot",
}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_commands(quick: Path, page: Path) -> None:
    run("gpvae demo --force")
    for command in [line for block in blocks(page, "console") for line in block.splitlines() if line]:
        run(command.replace("gpvae demo", "gpvae demo --force"))
    assert {path.name for path in quick.iterdir()} == {"demo", *WRITTEN[page]}


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `gpvae demo` writes."""
    folder = tmp_path_factory.mktemp("docs") / "demo"
    run(f"gpvae demo -o {folder}")
    return folder


@pytest.mark.parametrize("page", LAST, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_python(page: Path, quick: Path, demo: Path) -> None:
    (quick / "demo").symlink_to(demo)
    names: dict[str, object] = {}
    for snippet in blocks(page, "python"):  # later blocks use the names of earlier ones
        exec(compile(snippet.replace("epochs=100", "epochs=1"), page.name, "exec"), names)
    assert LAST[page] in names


def test_every_page_with_code_is_run() -> None:
    assert {page for page in PAGES if blocks(page, "python")} == {*LAST}
    assert {page for page in PAGES if blocks(page, "console")} == {*WRITTEN}


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r": (\S+\.md)$", (README.parent / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))


def test_the_reference_names_everything_that_the_package_offers() -> None:
    named = set(re.findall(r"^::: gpvae\.(\w+)", (DOCS / "api.md").read_text(), flags=re.MULTILINE))
    described_elsewhere = {"DEFAULT", "DEFAULT_RECIPE", "HI_VAE", "VAE", "DataError", "paper"}
    assert named - {"adapters"} == {*gpvae.__all__} - described_elsewhere


@pytest.mark.parametrize("page", [README, README.parent / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_make_targets_exist(page: Path) -> None:
    makefile = (README.parent / "Makefile").read_text()
    targets = re.findall(r"(?:^|`)make (\w+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in headings(target), link


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_lines_are_short(page: Path) -> None:
    """At most 120 characters, except rows of tables, which cannot be wrapped."""
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
