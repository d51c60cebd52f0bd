"""Files and folders appear complete or not at all."""

import errno
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from gpvae.data.atomic import atomic_write, require_writable
from gpvae.data.files import TableFile, read_table
from gpvae.data.panel import DataError

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from gpvae.data.files import TableFile
from gpvae.data.panel import DataError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
table = pa.table({"x": np.random.default_rng(0).normal(size=200_000)})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for name in sys.argv[1:]:
    try:
        TableFile(Path(name), table).write(Path(name), table, force=True)
    except DataError as error:
        print(error)
"""


class TestAtomicWrite:
    @staticmethod
    def names(folder: Path) -> list[str]:
        return sorted(path.name for path in folder.iterdir())

    @staticmethod
    def fail_halfway(target: Path, folder: bool, failure: BaseException) -> None:
        with atomic_write(target, force=True) as partial:
            if folder:
                partial.mkdir()
            (partial / "part" if folder else partial).write_text("half")
            raise failure

    def test_files_and_folders_appear_when_complete(self, tmp_path: Path) -> None:
        with atomic_write(tmp_path / "a.txt", force=False) as partial:
            partial.write_text("new")
            assert not (tmp_path / "a.txt").exists()
        with atomic_write(tmp_path / "model", force=False) as partial:
            partial.mkdir()
            (partial / "part").write_text("new")
            assert not (tmp_path / "model").exists()
        assert self.names(tmp_path) == ["a.txt", "model"]
        assert (tmp_path / "model" / "part").read_text() == "new"

    def test_existing_files_are_kept_unless_forced(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("old")
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "old part").touch()
        for name in ("a.txt", "model"):
            with (
                pytest.raises(DataError, match=f"{name} exists already"),
                atomic_write(tmp_path / name, force=False),
            ):
                pytest.fail("nothing may be computed for a target that cannot be written")
        with atomic_write(tmp_path / "a.txt", force=True) as partial:
            partial.write_text("new")
        with atomic_write(tmp_path / "model", force=True) as partial:
            partial.mkdir()
            (partial / "part").touch()
            assert self.names(tmp_path / "model") == ["old part"]
        assert (tmp_path / "a.txt").read_text() == "new"
        assert self.names(tmp_path / "model") == ["part"]
        assert self.names(tmp_path) == ["a.txt", "model"]

    @pytest.mark.parametrize(
        "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyError("x"), KeyboardInterrupt()]
    )
    @pytest.mark.parametrize("folder", [False, True])
    def test_a_failure_leaves_the_old_file(self, tmp_path: Path, failure: BaseException, folder: bool) -> None:
        target = tmp_path / "target"
        old = target / "old" if folder else target
        old.parent.mkdir(exist_ok=True)
        old.write_text("old")
        expected = DataError if isinstance(failure, OSError) else type(failure)
        with pytest.raises(expected) as error:
            self.fail_halfway(target, folder, failure)
        if expected is DataError:
            assert str(error.value) == f"cannot write {target}: No space left on device; nothing was changed"
        assert self.names(tmp_path) == ["target"]
        assert old.read_text() == "old"

    def test_a_failure_of_the_last_step_leaves_the_old_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "old").touch()
        rename = Path.rename

        def failing(path: Path, target: Path) -> Path:
            if path.suffix == ".partial":
                raise OSError(errno.EIO, "Input/output error")
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", failing)
        with (
            pytest.raises(DataError, match="Input/output error"),
            atomic_write(tmp_path / "model", force=True) as partial,
        ):
            partial.mkdir()
        assert self.names(tmp_path) == ["model"]
        assert self.names(tmp_path / "model") == ["old"]

    def test_a_full_disk_while_a_table_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "in.csv").write_text("x,y\n1,2\n,3\n")
        table = read_table(tmp_path / "in.csv")

        def full(path: Path, content: bytes) -> int:
            with path.open("wb") as file:
                file.write(content[:3])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(DataError, match=r"cannot write .*out\.csv: No space left on device; nothing was changed"):
            table.write(tmp_path / "out.csv", table.table, force=False)
        assert self.names(tmp_path) == ["in.csv"]

    def test_a_table_too_big_for_the_disk(self, tmp_path: Path) -> None:
        names = ["a.csv", "a.csv.gz", "a.parquet"]
        for name in names:
            (tmp_path / name).write_text("old")
        command = [sys.executable, "-c", FULL_DISK, *(str(tmp_path / name) for name in names)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = run.stdout.splitlines()
        assert len(lines) == 3
        for name, line in zip(names, lines, strict=True):
            assert line.startswith(f"cannot write {tmp_path / name}: ")
            assert "File too large" in line
            assert line.endswith("; nothing was changed")
            assert (tmp_path / name).read_text() == "old"
        assert self.names(tmp_path) == names

    def test_a_file_does_not_replace_a_folder_nor_the_reverse(self, tmp_path: Path) -> None:
        (tmp_path / "out.csv").mkdir()
        (tmp_path / "file").write_text("old")
        table = TableFile(tmp_path / "in.csv", pa.table({"x": [1.0]}))
        with pytest.raises(DataError, match=r"out\.csv is a folder, not a file"):
            table.write(tmp_path / "out.csv", table.table, force=True)
        with (
            pytest.raises(DataError, match="Is a directory"),
            atomic_write(tmp_path / "out.csv", force=True) as partial,
        ):
            partial.write_text("new")
        with (
            pytest.raises(DataError, match="Not a directory"),
            atomic_write(tmp_path / "file", force=True) as partial,
        ):
            partial.mkdir()
        assert self.names(tmp_path) == ["file", "out.csv"]
        assert (tmp_path / "file").read_text() == "old"

    def test_an_invalid_target_is_refused_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DataError, match="there is no folder"):
            require_writable(tmp_path / "lost" / "a.csv", force=False)
        with pytest.raises(DataError, match="it has no file name"):
            require_writable(Path(), force=True)
        monkeypatch.setattr("os.access", lambda *_: False)
        with pytest.raises(DataError, match="is not writable"):
            require_writable(tmp_path / "a.csv", force=False)
