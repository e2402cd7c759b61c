"""After an unclean shutdown the checkpoint that serves is checked behind the server; after a shutdown it is not."""

from pathlib import Path
from typing import Any

import pytest

from hostkit import events, intent, jobs, paths, release, shutdowns, stamps, verify
from hostkit.events import Progress


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Jobs that were started, on a machine whose release has a checkpoint."""
    started: list[Any] = []
    monkeypatch.setattr(shutdowns, "_MARK", tmp_path / "up.json")
    monkeypatch.setattr(jobs, "start", lambda kind, request, by: started.append((kind, request["folder"])))
    monkeypatch.setattr(jobs, "running", lambda _kind: False)
    monkeypatch.setattr(release, "active", lambda: "digest")
    monkeypatch.setattr(release, "load", lambda _digest: {"checkpoint": {"folder": "/srv/models/a/b/c"}})
    return started


def boots(monkeypatch: pytest.MonkeyPatch, boot: str) -> None:
    monkeypatch.setattr(intent, "boot_id", lambda: boot)
    shutdowns.came_up()


def test_a_first_boot_and_one_after_a_shutdown_check_nothing(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    boots(monkeypatch, "first")
    shutdowns.goes_down()
    boots(monkeypatch, "second")
    assert asked == []


def test_a_boot_after_a_power_cut_checks_the_checkpoint_once(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    boots(monkeypatch, "first")
    boots(monkeypatch, "second")
    shutdowns.came_up()
    assert asked == [("check", "/srv/models/a/b/c")]


def test_a_check_that_a_shutdown_cut_off_begins_anew(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    boots(monkeypatch, "first")
    monkeypatch.setattr(jobs, "running", lambda kind: kind == "check")
    shutdowns.goes_down()
    boots(monkeypatch, "second")
    assert len(asked) == 1


def test_a_mark_that_is_half_written_is_no_shutdown(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "up.json").write_text("")
    boots(monkeypatch, "first")
    assert len(asked) == 1


def test_a_deep_check_takes_the_stamp_from_a_damaged_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "CHECKPOINT_STAMPS", tmp_path / "stamps")
    folder = tmp_path / "a/b/c"
    folder.mkdir(parents=True)
    (folder / "x").write_bytes(b"right")
    files = {"x": {"size": 5, "git_blob_id": "ca9bf8ab4463f573b15b43bf4ac9ee2bb46dc4ec"}}
    stamps.write(folder, "a/b", "c", files, {"x": stamps.identity(folder / "x")})
    (tmp_path / "job").mkdir()
    wrong = verify.deep({"folder": str(folder)}, Progress(tmp_path / "job"))
    assert (wrong.code, stamps.read(folder)) == (events.REFUSED, None)
    files["x"]["git_blob_id"] = "19981f7e045c3a2c35d15e977b6f56f1923bb400"  # git hash-object
    stamps.write(folder, "a/b", "c", files, {"x": stamps.identity(folder / "x")})
    right = verify.deep({"folder": str(folder)}, Progress(tmp_path / "job"))
    assert (right.code, stamps.is_verified(folder)) == (events.OK, None)
