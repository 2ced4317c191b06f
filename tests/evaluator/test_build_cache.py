"""Builds travel as archives from runner to runner, and are kept on the host by what they were built from."""

import io
import os
import tarfile
import time
from pathlib import Path

import pytest

from evaluator.build_cache import BuildCache
from evaluator.referee.runner import build_files


def test_what_is_packed_is_unpacked_with_times_and_modes(tmp_path: Path) -> None:
    built, again = tmp_path / "built", tmp_path / "again"
    (built / "extensions" / "op").mkdir(parents=True)
    library, source = built / "extensions" / "op" / "op.so", built / "extensions" / "op" / "main.cpp"
    library.write_bytes(b"\x7fELF")
    library.chmod(0o755)
    source.write_text("int x;")
    os.utime(source, (1000.9, 1000.9))
    (built / "header.gch").write_text("large")
    (built / "link").symlink_to("/etc/passwd")
    build_files.unpack(build_files.pack(built), again)
    assert sorted(str(path.relative_to(again)) for path in again.rglob("*") if path.is_file()) == [
        "extensions/op/main.cpp",
        "extensions/op/op.so",
    ]
    assert (again / "extensions/op/op.so").stat().st_mode & 0o777 == 0o755
    assert (again / "extensions/op/main.cpp").stat().st_mtime == 1000


@pytest.mark.parametrize(
    ("name", "kind"), [("../out", tarfile.REGTYPE), ("/tmp/out", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)]
)
def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(ValueError, match="no plain file of this folder"):
        build_files.unpack(archive.getvalue(), tmp_path / "folder")
    assert not (tmp_path / "out").exists()


def test_the_cache_gives_back_what_was_put_under_the_same_key_only(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put("a", "QUJD")
    assert cache.get("a") == "QUJD"
    assert cache.get("b") == ""


def test_a_damaged_file_of_the_cache_is_no_build(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put("a", "QUJD")
    (path,) = tmp_path.glob("*.b64")
    path.write_text("not base64!")
    assert cache.get("a") == ""


def test_what_has_not_been_asked_for_longest_makes_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.build_cache._KEEP_FILES", 2)
    cache = BuildCache(tmp_path)
    for age_s, key in ((300, "asked for"), (200, "forgotten")):
        cache.put(key, "QUJD")
        then = time.time() - age_s
        os.utime(cache._path(key), (then, then))
    assert cache.get("asked for") == "QUJD"
    cache.put("new", "QUJD")
    assert [cache.get(key) for key in ("asked for", "forgotten", "new")] == ["QUJD", "", "QUJD"]


def test_a_folder_that_cannot_be_written_to_still_gives_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BuildCache(tmp_path)
    cache.put("key", "QUJD")

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", refused)
    assert cache.get("key") == "QUJD"
