"""Build the sdist and the wheel of a release, check both, and print what to do next. `make release` calls it."""

import csv
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


class ReleaseError(Exception):
    """A reason not to release; its message is shown to the user."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """The standard output of a command; PYTHONPATH is unset, so that only installed packages are found."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], cwd=cwd or ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(map(str, command))
        raise ReleaseError(f"`{words}` failed with exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def project_version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def require_clean_tree() -> None:
    if changed := run("git", "status", "--porcelain"):
        raise ReleaseError(f"the working tree has uncommitted changes:\n{changed.rstrip()}")


def require_new_tag(version: str) -> None:
    if run("git", "tag", "--list", f"v{version}").strip():
        raise ReleaseError(f"tag v{version} exists already: raise the version in pyproject.toml")


def require_changelog_section(version: str) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, flags=re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`")


def require_same_citation(version: str) -> None:
    if f"version: {version}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        raise ReleaseError(f"CITATION.cff does not say `version: {version}`")


def build() -> tuple[Path, Path]:
    """The sdist and the wheel, alone in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def source_files() -> set[str]:
    """The tracked files of the package, from its root: gpvae/py.typed, gpvae/report/web/page.html, …"""
    return {name.removeprefix("src/") for name in run("git", "ls-files", "src/gpvae").splitlines()}


def require_complete(sdist: Path, wheel: Path, sources: set[str]) -> None:
    """Both must hold every source file, so that no web asset or type marker is left out."""
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[-1].removeprefix("src/") for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {*archive.namelist()}
    for path, names in ((sdist, in_sdist), (wheel, in_wheel)):
        if missing := sources - names:
            raise ReleaseError(f"{path.name} lacks {', '.join(sorted(missing))}")


def require_working(wheel: Path, version: str) -> None:
    """Install the wheel into a fresh environment, with the versions of constraints.txt, and fill a small table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        binaries = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        run(binaries / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
        shown = run(binaries / "gpvae", "--version", cwd=folder)
        if version not in shown:
            raise ReleaseError(f"`gpvae --version` of the wheel prints {shown.strip()!r}, not {version}")
        (folder / "table.csv").write_text("\n".join(["x,y", *(f"{row},{row % 5 or ''}" for row in range(40))]) + "\n")
        run(binaries / "gpvae", "impute", "table.csv", "-o", "filled.csv", "--epochs", "1", cwd=folder)
        with (folder / "filled.csv").open(newline="") as file:
            require_filled([*csv.DictReader(file)])


def require_filled(rows: list[dict[str, str]]) -> None:
    if len(rows) != 40 or not all(row["x"] and row["y"] for row in rows):
        raise ReleaseError("`gpvae impute` of the wheel left gaps in a small table")


def main() -> None:
    version = project_version()
    require_clean_tree()
    require_new_tag(version)
    require_changelog_section(version)
    require_same_citation(version)
    sdist, wheel = build()
    print(run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel).rstrip())
    require_complete(sdist, wheel, source_files())
    require_working(wheel, version)
    print(f"""
dist/ holds {sdist.name} and {wheel.name}. Next:
  git tag --annotate v{version} --message "gpvae {version}"
  git push origin v{version}
  {Path(sys.executable).parent / "twine"} upload {sdist.relative_to(ROOT)} {wheel.relative_to(ROOT)}
Then raise the version in pyproject.toml and CITATION.cff to the next .dev0.""")


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as problem:
        sys.exit(f"No release: {problem}")
