"""The local model hub answers as documented, and each of its faults is one that a plain HTTP client sees."""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from sandbox.model_hub import faults, git_objects
from sandbox.model_hub.running import Hub

REPOSITORY = "owner/model"
WEIGHTS = "model.safetensors"
CONTENT = os.urandom(400_000)
LIMIT_S = 10


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("models")
    for name in ("model", "model@old"):
        (folder / "owner" / name / "deep/er").mkdir(parents=True)
        (folder / "owner" / name / WEIGHTS).write_bytes(CONTENT)
        (folder / "owner" / name / "deep/er/config.json").write_text(json.dumps({"branch": name}))
    (folder / f"{REPOSITORY}.json").write_text('{"license": "mit", "date": "2026-05-28T00:00:00.000Z"}')
    with Hub(folder, tmp_path_factory.mktemp("state"), page=2) as running:
        yield running


@pytest.fixture(autouse=True)
def without_faults(hub: Hub) -> None:
    hub.set_faults()
    hub.forget()


def get(hub: Hub, path: str = f"{REPOSITORY}/resolve/main/{WEIGHTS}", **options: Any) -> requests.Response:
    return requests.get(f"{hub.endpoint}/{path}", timeout=LIMIT_S, **options)


def test_ids_are_those_that_git_gives(tmp_path: Path) -> None:
    for name, text in {"a.txt": "a", "b/c.txt": "c", "b.txt": "b", "b/d/e.txt": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    blobs = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*.txt")}
    trees = git_objects.tree_ids({name: git_objects.blob_id(path) for name, path in blobs.items()})
    # git 2.x of the same files: `git rev-parse HEAD: HEAD:b HEAD`
    assert trees[""] == "833890d3c0a79216a1065e6bd7f163f30a9e56fb"
    assert trees["b"] == "63de1184290836cb2c490841e696048221717ff8"
    assert git_objects.commit_id(trees[""], 1780000000) == "77840116874734270b689a84c7ce143c95cd223c"


def test_a_branch_leads_to_a_commit_and_each_commit_has_its_own_files(hub: Hub) -> None:
    main, old = (get(hub, f"api/models/{REPOSITORY}/revision/{name}").json() for name in ("main", "old"))
    assert len(main["sha"]) == 40
    assert main["sha"] != old["sha"]
    assert main["cardData"] == {"license": "mit"}
    again = get(hub, f"api/models/{REPOSITORY}/revision/{old['sha']}").json()
    assert again["sha"] == old["sha"]
    config = get(hub, f"{REPOSITORY}/resolve/{old['sha']}/deep/er/config.json")
    assert config.json() == {"branch": "model@old"}
    assert config.headers["X-Repo-Commit"] == old["sha"]


def test_a_listing_comes_in_pages_with_the_hashes_of_its_files(hub: Hub) -> None:
    page = get(hub, f"api/models/{REPOSITORY}/tree/main?recursive=true")
    entries = page.json()
    while "next" in page.links:
        page = requests.get(page.links["next"]["url"], timeout=LIMIT_S)
        entries += page.json()
    assert [entry["path"] for entry in entries] == ["deep", "deep/er", "deep/er/config.json", WEIGHTS]
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert entries[-1]["lfs"] == {"oid": sha256, "size": len(CONTENT), "pointerSize": 131}
    assert entries[2]["oid"] == git_objects.blob_id(hub.folder / REPOSITORY / "deep/er/config.json")


@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-99", 206, 0, 100),
        ("bytes=399990-", 206, 399_990, 400_000),
        ("bytes=-5", 206, 399_995, 400_000),
        ("bytes=399999-500000", 206, 399_999, 400_000),
        ("bytes=0-1,5-6", 200, 0, 400_000),
    ],
)
def test_ranges(hub: Hub, asked: str, status: int, start: int, end: int) -> None:
    answer = get(hub, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (status, CONTENT[start:end])
    if status == 206:
        assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/400000"
    [request] = hub.requests(side="cdn")
    assert (request["range"], request["sent"]) == ([start, end], end - start)


def test_a_range_past_the_end_is_416(hub: Hub) -> None:
    answer = get(hub, headers={"Range": "bytes=400000-"})
    assert (answer.status_code, answer.headers["Content-Range"]) == (416, "bytes */400000")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("api/models/nobody/nothing", 401, "RepoNotFound"),
        (f"api/models/{REPOSITORY}/revision/nowhere", 404, "RevisionNotFound"),
        (f"{REPOSITORY}/resolve/main/nothing.json", 404, "EntryNotFound"),
        ("api/models/../etc", 401, "RepoNotFound"),
        (f"{REPOSITORY}/resolve/main/../model@old/{WEIGHTS}", 404, "EntryNotFound"),
    ],
)
def test_what_is_not_there(hub: Hub, path: str, status: int, code: str) -> None:
    request = requests.Request("GET", hub.endpoint).prepare()
    request.url = f"{hub.endpoint}/{path}"  # as it is: a client would take `..` away
    answer = requests.Session().send(request, timeout=LIMIT_S)
    assert (answer.status_code, answer.headers.get("X-Error-Code", "")) == (status, code)


def test_a_link_to_the_cdn_is_signed_and_takes_no_token(hub: Hub) -> None:
    link = get(hub, allow_redirects=False).headers["Location"]
    assert requests.get(link, timeout=LIMIT_S).content == CONTENT
    assert requests.get(link, headers={"Authorization": "Bearer hf_x"}, timeout=LIMIT_S).status_code == 400
    assert requests.get(link.replace("Expires=1", "Expires=2"), timeout=LIMIT_S).status_code == 403


@pytest.mark.parametrize("rule", [{"fault": "reset", "after": 1000}, {"fault": "truncated"}])
def test_a_file_that_breaks_off(hub: Hub, rule: dict[str, Any]) -> None:
    hub.set_faults({**rule, "first": 1})
    with pytest.raises(requests.RequestException):
        get(hub)
    assert get(hub).content == CONTENT
    assert hub.sent() == rule.get("after", 200_000) + 400_000


def test_a_file_that_stalls(hub: Hub) -> None:
    hub.set_faults({"fault": "stall", "after": 50_000})
    with pytest.raises(requests.ConnectionError, match="timed out"):
        requests.get(f"{hub.endpoint}/{REPOSITORY}/resolve/main/{WEIGHTS}", timeout=0.3)
    assert hub.sent() == 50_000


def test_a_file_that_is_wrong(hub: Hub) -> None:
    hub.set_faults({"fault": "wrong-bytes"})
    answer = get(hub, headers={"Range": "bytes=199900-"}).content
    assert [index for index in range(200_100) if answer[index] != CONTENT[199_900 + index]] == list(range(100, 116))
    hub.set_faults({"fault": "wrong-length"})
    assert get(hub).content == CONTENT[:-1000]
    hub.set_faults({"fault": "wrong-length", "by": 1000})
    assert get(hub).content == CONTENT + bytes(1000)


def test_a_server_without_ranges(hub: Hub) -> None:
    hub.set_faults({"fault": "no-ranges"})
    answer = get(hub, headers={"Range": "bytes=5-"})
    assert (answer.status_code, len(answer.content)) == (200, 400_000)
    assert "Accept-Ranges" not in answer.headers


def test_a_slow_file(hub: Hub) -> None:
    hub.set_faults({"fault": "slow", "rate": 1_000_000})
    started = time.monotonic()
    assert get(hub).content == CONTENT
    assert 0.35 < time.monotonic() - started < 4


def test_refusals_and_how_long_to_wait(hub: Hub) -> None:
    hub.set_faults({"fault": "429", "retry_after": 7, "on": "api", "first": 1}, {"fault": "503", "file": WEIGHTS})
    busy = get(hub, f"api/models/{REPOSITORY}")
    assert (busy.status_code, busy.headers["Retry-After"]) == (429, "7")
    assert get(hub, f"api/models/{REPOSITORY}").status_code == 200
    assert get(hub).status_code == 503
    assert get(hub, f"{REPOSITORY}/resolve/main/deep/er/config.json").status_code == 200


def test_an_expired_link(hub: Hub) -> None:
    hub.set_faults({"fault": "expired", "first": 1})
    assert get(hub).status_code == 403
    assert get(hub).content == CONTENT


def test_a_listing_that_is_cut(hub: Hub) -> None:
    hub.set_faults({"fault": "cut-listing", "page": 3})
    page = get(hub, f"api/models/{REPOSITORY}/tree/main?recursive=true")
    assert (len(page.json()), page.links) == (3, {})


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [(None, 401, "GatedRepo"), ("hf_other", 403, "GatedRepo"), ("nonsense", 401, None), ("hf_right", 200, None)],
)
def test_gated(hub: Hub, token: str | None, status: int, code: str | None) -> None:
    hub.set_faults({"fault": "gated", "token": "hf_right"})
    assert get(hub, f"api/models/{REPOSITORY}").json()["gated"] == "manual"
    answer = get(hub, headers={"Authorization": f"Bearer {token}"} if token else {})
    assert (answer.status_code, answer.headers.get("X-Error-Code")) == (status, code)


def test_no_rules_are_no_faults() -> None:
    assert faults.parse("[]") == []


@pytest.mark.parametrize("text", ["[1]", '[{"fault": "rest"}]', '[{"fault": "429", "retry": 1}]', "[", '{"fault": 1}'])
def test_bad_rules_are_said(hub: Hub, text: str) -> None:
    (hub.state / "faults.json").write_text(text)
    answer = get(hub)
    assert answer.status_code == 500
    assert "faults" in answer.json()["error"]


def test_connections_share_one_rate(hub: Hub, tmp_path: Path) -> None:
    with Hub(hub.folder, tmp_path, rate=2_000_000) as slow, ThreadPoolExecutor() as pool:
        started = time.monotonic()
        assert [answer.content for answer in pool.map(get, [slow, slow])] == [CONTENT, CONTENT]
        assert 0.35 < time.monotonic() - started < 4
