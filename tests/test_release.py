"""`make release` refuses what must not be released; building itself needs the network, and is left to the release."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "release.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A committed project that is ready for release 1.2.3."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


@pytest.fixture
def release() -> Any:
    spec = spec_from_file_location("release", SCRIPT)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message", "change")


def refusal(folder: Path) -> str:
    """What the script says; it must fail without building anything."""
    done = subprocess.run([sys.executable, folder / "scripts" / "release.py"], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert not (folder / "dist").exists()
    return done.stderr


def test_refuses_uncommitted_changes(checkout: Path) -> None:
    (checkout / "new.py").touch()
    assert "No release: the working tree has uncommitted changes:\n?? new.py" in refusal(checkout)


def test_refuses_a_version_that_is_tagged(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.3")
    assert "No release: tag v1.2.3 exists already" in refusal(checkout)


@pytest.mark.parametrize(
    "heading", ["## [Unreleased]", "## [1.2.30] - 2026-01-31", "## [1.2.3]", "## [1x2.3] - 2026-02-01"]
)
def test_refuses_a_changelog_without_a_dated_section_for_the_version(checkout: Path, heading: str) -> None:
    (checkout / "CHANGELOG.md").write_text(f"{heading}\n")
    commit(checkout)
    assert "No release: CHANGELOG.md has no section `## [1.2.3] - YYYY-MM-DD`" in refusal(checkout)


def test_refuses_a_citation_of_another_version(checkout: Path) -> None:
    (checkout / "CITATION.cff").write_text("version: 1.2.2\n")
    commit(checkout)
    assert "No release: CITATION.cff does not say `version: 1.2.3`" in refusal(checkout)


def test_goes_on_to_build_when_nothing_is_wrong(checkout: Path, release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", checkout)

    def build() -> None:
        raise release.ReleaseError("building")

    monkeypatch.setattr(release, "build", build)
    with pytest.raises(release.ReleaseError, match="building"):
        release.main()


@pytest.mark.parametrize("missing", ["gpvae/py.typed", "gpvae/report/web/page.html"])
@pytest.mark.parametrize("incomplete", ["sdist", "wheel"])
def test_refuses_archives_that_lack_a_source_file(tmp_path: Path, release: Any, missing: str, incomplete: str) -> None:
    sources = {"gpvae/__init__.py", "gpvae/py.typed", "gpvae/report/web/page.html"}
    sdist, wheel = tmp_path / "gpvae-1.tar.gz", tmp_path / "gpvae-1.whl"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in sources - ({missing} if incomplete == "sdist" else set()):
            archive.add(SCRIPT, f"gpvae-1/src/{name}")
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in sources - ({missing} if incomplete == "wheel" else set()):
            archive.writestr(name, "")
    with pytest.raises(release.ReleaseError, match=f"{'gz' if incomplete == 'sdist' else 'whl'} lacks {missing}$"):
        release.require_complete(sdist, wheel, sources)
    release.require_complete(sdist, wheel, sources - {missing})


@pytest.mark.parametrize("rows", [[{"x": "1", "y": "2"}] * 39, [{"x": "1", "y": ""}] * 40])
def test_refuses_a_wheel_that_leaves_gaps(release: Any, rows: list[dict[str, str]]) -> None:
    with pytest.raises(release.ReleaseError, match="left gaps"):
        release.require_filled(rows)
