"""Files and folders appear complete or not at all."""

import errno
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from gpvae.data.atomic import atomic_write, claim, require_writable
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

    def test_a_file_appears_when_it_is_complete(self, tmp_path: Path) -> None:
        with atomic_write(tmp_path / "a.txt", force=False) as partial:
            partial.write_text("new")
            assert not (tmp_path / "a.txt").exists()
        assert self.names(tmp_path) == ["a.txt"]
        assert (tmp_path / "a.txt").read_text() == "new"

    def test_an_existing_file_is_kept_unless_forced(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("old")
        with (
            pytest.raises(DataError, match=r"a\.txt exists already"),
            atomic_write(tmp_path / "a.txt", force=False),
        ):
            pytest.fail("nothing may be computed for a target that cannot be written")
        with atomic_write(tmp_path / "a.txt", force=True) as partial:
            partial.write_text("new")
        assert (tmp_path / "a.txt").read_text() == "new"
        assert self.names(tmp_path) == ["a.txt"]

    @pytest.mark.parametrize("hard_links", [True, False])
    def test_a_file_that_appears_in_the_meantime_is_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
    ) -> None:
        def refuse(path: Path, target: Path) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        if not hard_links:
            monkeypatch.setattr(Path, "hardlink_to", refuse)
        with atomic_write(tmp_path / "b.txt", force=False) as partial:
            partial.write_text("new")

        def write_while_another_does(target: Path) -> None:
            with atomic_write(target, force=False) as partial:
                partial.write_text("new")
                target.write_text("somebody's")

        with pytest.raises(DataError, match=r"a\.txt appeared in the meantime and was not overwritten"):
            write_while_another_does(tmp_path / "a.txt")
        assert (tmp_path / "a.txt").read_text() == "somebody's"
        assert (tmp_path / "b.txt").read_text() == "new"
        assert self.names(tmp_path) == ["a.txt", "b.txt"]

    def test_a_link_stays_and_its_target_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "store").mkdir()
        (tmp_path / "link.txt").symlink_to("store/a.txt")
        for text in ("first", "second"):
            with atomic_write(tmp_path / "link.txt", force=True) as partial:
                partial.write_text(text)
            assert (tmp_path / "link.txt").is_symlink()
            assert (tmp_path / "store" / "a.txt").read_text() == text
        assert self.names(tmp_path / "store") == ["a.txt"]

    @pytest.mark.parametrize(
        "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyError("x"), KeyboardInterrupt()]
    )
    def test_a_failure_leaves_the_old_file(self, tmp_path: Path, failure: BaseException) -> None:
        (tmp_path / "a.txt").write_text("old")
        expected = DataError if isinstance(failure, OSError) else type(failure)

        def fail_halfway(target: Path) -> None:
            with atomic_write(target, force=True) as partial:
                partial.write_text("half")
                raise failure

        with pytest.raises(expected) as error:
            fail_halfway(tmp_path / "a.txt")
        if expected is DataError:
            assert str(error.value).endswith("a.txt: No space left on device; nothing was changed")
        assert self.names(tmp_path) == ["a.txt"]
        assert (tmp_path / "a.txt").read_text() == "old"

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

    def test_a_file_does_not_replace_a_folder(self, tmp_path: Path) -> None:
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
        assert self.names(tmp_path) == ["file", "out.csv"]
        assert (tmp_path / "file").read_text() == "old"

    def test_an_invalid_target_is_refused_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DataError, match="there is no folder"):
            require_writable(tmp_path / "lost" / "a.csv", force=False)
        with pytest.raises(DataError, match="it has no file name"):
            require_writable(Path(), force=True)
        with pytest.raises(DataError, match="it is a device or a pipe"):
            require_writable(Path("/dev/null"), force=True)
        monkeypatch.setattr("os.access", lambda *_: False)
        with pytest.raises(DataError, match="is not writable"):
            require_writable(tmp_path / "a.csv", force=False)


HOLD = """
import sys, time
from pathlib import Path
from gpvae.data.atomic import atomic_write, claim

with claim(Path("a.txt")), atomic_write(Path("a.txt"), force=True) as partial:
    partial.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
def test_a_second_run_is_told_who_writes_and_a_killed_one_is_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "writing\n"
        holder = f"process {other.pid} on .*, since 20"
        with pytest.raises(DataError, match=f"a.txt is being written by another run .{holder}"), claim(Path("a.txt")):
            pytest.fail("two runs must not write the same file")
        with atomic_write(Path("a.txt"), force=True) as partial:
            partial.write_text("mine")
        assert len(list(tmp_path.glob(".a.txt.*.partial"))) == 1  # of a run that lives
        other.kill()
    assert len(list(tmp_path.iterdir())) == 3
    with claim(Path("a.txt")), claim(Path("a.txt")):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".a.txt.lock", "a.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written all the same; what may be a live run's is left alone."""

    def unsupported(file: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    (tmp_path / ".a.txt.0a1b.partial").touch()
    with claim(tmp_path / "a.txt"), atomic_write(tmp_path / "a.txt", force=False) as partial:
        partial.write_text("new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.txt.0a1b.partial", "a.txt"]
