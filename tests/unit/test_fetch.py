"""A checkpoint is fetched from the local hub: whole and checked whatever the hub does, or refused in a line."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests

from hostkit import events
from sandbox.model_hub.running import Hub
from tests.fetching import REPOSITORY, Place, manifest

BIG, SMALL = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = {"weight_map": {"a": BIG, "b": SMALL}}
MIB = 1 << 20


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two hubs serve: three pieces in one file, one in another, small ones, an empty one."""
    folder = tmp_path_factory.mktemp("hub")
    here = folder / REPOSITORY
    (here / "deep/er").mkdir(parents=True)
    (here / BIG).write_bytes(os.urandom(20 * MIB))
    (here / SMALL).write_bytes(os.urandom(3 * MIB + 17))
    (here / "model.safetensors.index.json").write_text(json.dumps(INDEX))
    (here / "deep/er/config.json").write_text("{}")
    (here / "empty").touch()
    return folder


@pytest.fixture(scope="module")
def hubs(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Hub]]:
    with (
        Hub(models, tmp_path_factory.mktemp("first")) as first,
        Hub(models, tmp_path_factory.mktemp("second")) as second,
    ):
        yield [first, second]


@pytest.fixture
def hub(hubs: list[Hub]) -> Hub:
    for one in hubs:
        one.set_faults()
        one.forget()
    return hubs[0]


@pytest.fixture
def mirror(hub: Hub, hubs: list[Hub]) -> Hub:
    return hubs[1]


@pytest.fixture(scope="module")
def files(models: Path) -> dict[str, Any]:
    return manifest(models / REPOSITORY)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def total(files: dict[str, Any]) -> int:
    return sum(file["size"] for file in files.values())


def test_a_checkpoint_arrives_whole_and_each_byte_once(place: Place, hub: Hub, files: dict[str, Any]) -> None:
    result = place.bring(files, hub.endpoint)
    assert result.code == 0, result.message
    assert place.is_whole(files)
    assert hub.sent() == total(files)
    assert len(hub.requests(file=BIG, status=206)) > 1, "a big file comes in several pieces"


def test_a_second_run_asks_nobody(place: Place, hub: Hub, files: dict[str, Any]) -> None:
    assert place.bring(files, hub.endpoint).code == 0
    hub.forget()
    assert place.bring(files, hub.endpoint).code == 0
    assert hub.requests() == []


# Faults that a fetch gets over with a single source, by the rules of sandbox/model_hub/faults.py.
OVERCOME: dict[str, list[dict[str, Any]]] = {
    "stall": [{"fault": "stall", "file": BIG, "first": 2, "after": 2 * MIB}],
    "slow": [{"fault": "slow", "file": BIG, "first": 1, "rate": 100_000}],
    "reset in the middle of a range": [{"fault": "reset", "file": BIG, "first": 3, "after": 3 * MIB}],
    "reset of every file at its first byte": [{"fault": "reset", "first": 6, "after": 0}],
    "truncated": [{"fault": "truncated", "file": BIG, "first": 2, "after": 2 * MIB}],
    "wrong bytes once": [{"fault": "wrong-bytes", "file": SMALL, "first": 1}],
    "expired links": [{"fault": "expired", "first": 3}],
    "429 with Retry-After": [{"fault": "429", "first": 4, "retry_after": 1}],
    "503": [{"fault": "503", "first": 4}],
    "no ranges": [{"fault": "no-ranges"}],
    "no ranges, and resets": [{"fault": "reset", "file": BIG, "first": 2, "after": 9 * MIB}, {"fault": "no-ranges"}],
}


@pytest.mark.parametrize("name", OVERCOME)
def test_a_fetch_gets_over(name: str, place: Place, hub: Hub, files: dict[str, Any]) -> None:
    hub.set_faults(*OVERCOME[name])
    result = place.bring(files, hub.endpoint)
    assert result.code == 0, result.message
    assert place.is_whole(files)
    met = [line for line in hub.requests() if line["fault"]]
    assert met, "the fault was met"


# Faults that make a fetch take the rest from the mirror; without one they are refused, in these words.
NO_WAY_ROUND: dict[str, tuple[list[dict[str, Any]], str]] = {
    "stall": ([{"fault": "stall", "file": BIG, "after": 0}], "nothing came for"),
    "429": ([{"fault": "429", "retry_after": 9}], "429"),
    "503": ([{"fault": "503"}], "503"),
    "wrong bytes": ([{"fault": "wrong-bytes", "file": SMALL}], "gives other content than the manifest says"),
    "wrong length": ([{"fault": "wrong-length", "file": SMALL}], f"bytes instead of {3 * MIB + 17}"),
    "gated": ([{"fault": "gated", "token": "hf_right"}], "hub_token_file"),
    "expired for ever": ([{"fault": "expired"}], "links that are answered with 403"),
}


@pytest.mark.parametrize("name", NO_WAY_ROUND)
def test_the_next_source_has_its_turn(name: str, place: Place, hub: Hub, mirror: Hub, files: dict[str, Any]) -> None:
    hub.set_faults(*NO_WAY_ROUND[name][0])
    result = place.bring(files, hub.endpoint, mirror.endpoint)
    assert result.code == 0, result.message
    assert place.is_whole(files)
    assert mirror.sent() > 0


@pytest.mark.parametrize("name", NO_WAY_ROUND)
def test_without_another_source_it_is_refused_in_a_line(
    name: str, place: Place, hub: Hub, files: dict[str, Any]
) -> None:
    faults, words = NO_WAY_ROUND[name]
    hub.set_faults(*faults)
    result = place.bring(files, hub.endpoint)
    assert result.code == events.REFUSED, result.message
    assert words in result.message
    assert "\n" not in result.message
    assert not place.folder.exists()


def test_a_file_that_one_source_damages_is_fetched_again_alone(
    place: Place, hub: Hub, mirror: Hub, files: dict[str, Any]
) -> None:
    hub.set_faults({"fault": "wrong-bytes", "file": SMALL})
    assert place.bring(files, hub.endpoint, mirror.endpoint).code == 0
    assert {line["file"] for line in mirror.requests() if line["range"]} == {SMALL}


def test_a_gated_repository_is_fetched_with_a_token_from_a_file(
    place: Place, hub: Hub, files: dict[str, Any], tmp_path: Path
) -> None:
    hub.set_faults({"fault": "gated", "token": "hf_right"})
    (tmp_path / "token").write_text("hf_right\n")
    result = place.bring(files, hub.endpoint, token_file=str(tmp_path / "token"))
    assert result.code == 0, result.message
    told = (tmp_path / "job/events.jsonl").read_text() if (tmp_path / "job/events.jsonl").exists() else ""
    assert "hf_right" not in told + result.message


def test_a_revision_that_the_hub_does_not_have(place: Place, hub: Hub, files: dict[str, Any]) -> None:
    result = place.bring(files, hub.endpoint, revision="0" * 40)
    assert result.code == events.REFUSED
    assert "has no owner/model@0000" in result.message


def test_what_nobody_listed_is_fetched_as_the_hub_lists_it(place: Place, hub: Hub, files: dict[str, Any]) -> None:
    result = place.bring(None, hub.endpoint)
    assert result.code == 0, result.message
    assert place.is_whole(files)


def test_a_manifest_of_half_a_listing_is_refused(place: Place, hub: Hub, files: dict[str, Any]) -> None:
    half = {name: file for name, file in files.items() if name != SMALL}
    result = place.bring(half, hub.endpoint)
    assert result.code == events.REFUSED
    assert f"names 1 files that the manifest lacks ({SMALL})" in result.message


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ".fetch/journal", "a/../../b"])
def test_a_name_that_leaves_the_folder_is_refused(name: str, place: Place, hub: Hub) -> None:
    result = place.bring({name: {"size": 1, "sha256": "0" * 64}}, hub.endpoint)
    assert result.code == events.REFUSED
    assert not place.folder.exists()


def test_a_file_that_was_tampered_with_is_set_aside_and_fetched_alone(
    place: Place, hub: Hub, files: dict[str, Any]
) -> None:
    assert place.bring(files, hub.endpoint).code == 0
    hub.forget()
    with (place.folder / SMALL).open("r+b") as file:
        file.write(b"tampered")
    result = place.bring(files, hub.endpoint)
    assert result.code == 0, result.message
    assert place.is_whole(files)
    assert {line["file"] for line in hub.requests() if line["range"]} == {SMALL}
    [aside] = place.folder.with_name("main.aside").iterdir()
    assert aside.read_bytes()[:8] == b"tampered"


def test_a_file_that_was_tampered_with_in_secret_is_found_by_a_deep_check(
    place: Place, hub: Hub, files: dict[str, Any]
) -> None:
    assert place.bring(files, hub.endpoint).code == 0
    before = (place.folder / SMALL).stat()
    with (place.folder / SMALL).open("r+b") as file:
        file.write(b"tampered")
    os.utime(place.folder / SMALL, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place.bring(files, hub.endpoint).code == 0
    assert not place.is_whole(files), "the stamp alone cannot see it"
    assert place.bring(files, hub.endpoint, deep=True).code == 0
    assert place.is_whole(files)


def test_no_source_and_a_damaged_file_is_refused(place: Place, hub: Hub, files: dict[str, Any]) -> None:
    assert place.bring(files, hub.endpoint).code == 0
    (place.folder / SMALL).write_bytes(b"short")
    result = place.bring(files)
    assert result.code == events.REFUSED
    assert f"{SMALL} has 5 bytes instead of {3 * MIB + 17}" in result.message


@pytest.mark.parametrize("layout", ["", REPOSITORY, f"{REPOSITORY}/main", "models--owner--model/snapshots/main"])
def test_files_under_another_path_are_adopted_and_not_fetched(
    layout: str, place: Place, hub: Hub, models: Path, files: dict[str, Any], tmp_path: Path
) -> None:
    there = tmp_path / "theirs" / layout
    shutil.copytree(models / REPOSITORY, there)
    before = {path: path.stat() for path in sorted(there.rglob("*"))}
    result = place.bring(files, hub.endpoint, adopt=[str(tmp_path / "theirs")])
    assert result.code == 0, result.message
    assert place.is_whole(files)
    assert hub.sent() == 0
    for path, info in before.items():
        now = path.stat()
        assert (now.st_mtime_ns, now.st_size, now.st_mode, now.st_uid) == (
            info.st_mtime_ns,
            info.st_size,
            info.st_mode,
            info.st_uid,
        )


def test_a_bad_file_under_another_path_is_not_adopted_nor_changed(
    place: Place, hub: Hub, models: Path, files: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(models / REPOSITORY, tmp_path / "theirs")
    bad = b"x" * files[SMALL]["size"]
    (tmp_path / "theirs" / SMALL).write_bytes(bad)
    assert place.bring(files, hub.endpoint, adopt=[str(tmp_path / "theirs")]).code == 0
    assert place.is_whole(files)
    assert {line["file"] for line in hub.requests() if line["range"]} == {SMALL}
    assert (tmp_path / "theirs" / SMALL).read_bytes() == bad


def test_a_file_that_only_its_owner_may_read_is_copied(
    place: Place, models: Path, files: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(models / REPOSITORY, tmp_path / "theirs")
    (tmp_path / "theirs" / SMALL).chmod(0o600)
    assert place.bring(files, adopt=[str(tmp_path / "theirs")]).code == 0
    assert place.is_whole(files)
    assert (place.folder / SMALL).stat().st_mode & 0o777 == 0o644


def test_a_folder_is_a_source_and_its_files_are_copied(place: Place, models: Path, files: dict[str, Any]) -> None:
    result = place.bring(files, str(models))
    assert result.code == 0, result.message
    assert place.is_whole(files)
    assert (place.folder / BIG).stat().st_ino != (models / REPOSITORY / BIG).stat().st_ino


def test_a_fetch_that_was_killed_goes_on_where_it_was(
    place: Place, models: Path, files: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    with Hub(models, tmp_path / "state", rate=12 * MIB) as slow:
        run = place.begin(files, slow.endpoint)
        journal = place.partial / ".fetch/journal"
        while not journal.exists() or journal.read_text().count("span ") < 6:
            assert run.poll() is None
        run.kill()
        run.wait()
        first = slow.sent()
        second = place.begin(files, slow.endpoint)
        assert second.communicate(timeout=60)[0].splitlines()[-1].startswith("0 ")
        assert place.is_whole(files)
        assert 0 < first < total(files)
        # 4 streams x 2 MiB without a line, and what the hub had sent into buffers.
        assert slow.sent() - total(files) < 4 * 2 * MIB + 4 * MIB


class _Proxy(BaseHTTPRequestHandler):
    """Fetches what it is asked for, and remembers the hosts."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        answer = requests.get(self.path, headers=headers, allow_redirects=False, timeout=9, proxies={"http": ""})
        self.send_response(answer.status_code)
        for name in ("Location", "Content-Range"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *_: object) -> None:
        """Nothing: the test looks at `asked`."""


def test_the_proxy_of_the_environment_is_used(
    place: Place, hub: Hub, files: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_address[1]}")
        monkeypatch.setenv("no_proxy", "")
        result = place.bring(files, hub.endpoint)
        proxy.shutdown()
    assert result.code == 0, result.message
    assert place.is_whole(files)
    assert len(_Proxy.asked) >= len([name for name, file in files.items() if file["size"]])


def test_two_fetches_at_once_are_one_and_a_refusal(
    place: Place, models: Path, files: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    with Hub(models, tmp_path / "state", rate=12 * MIB) as slow:
        runs = [place.begin(files, slow.endpoint) for _ in range(2)]
        ends = sorted(run.communicate(timeout=60)[0].splitlines()[-1] for run in runs)
    assert ends[0].startswith("0 ")
    assert ends[1].startswith("2 ") and "is being filled by another process" in ends[1]
    assert place.is_whole(files)
