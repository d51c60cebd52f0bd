"""Which commit, version and hardware a result names."""

import subprocess
from pathlib import Path

import pytest

from gpvae.evaluation import provenance


def test_a_checkout_names_its_commit_and_whether_code_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    for arguments in (["init"], ["add", "."], ["commit", "-m", "first"]):
        git(*arguments)
    monkeypatch.setenv("GPVAE_COMMIT", "stale")
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    commit = git("describe", "--always").strip()
    (tmp_path / "results.csv").touch()
    assert provenance.describe()["commit"] == commit
    (tmp_path / "src" / "new.py").touch()
    assert provenance.describe()["commit"] == f"{commit}-dirty"


def test_an_installed_package_names_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPVAE_COMMIT", raising=False)
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    assert provenance.describe()["commit"].startswith("gpvae 0.")


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")], ids=repr)
def test_a_checkout_that_git_cannot_read_names_the_version(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.delenv("GPVAE_COMMIT", raising=False)
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    monkeypatch.setattr(provenance.subprocess, "run", fail)
    assert provenance.describe()["commit"].startswith("gpvae 0.")


def test_hardware_of_the_cpu() -> None:
    assert " cores, " in provenance.describe("cpu")["hardware"]
