"""Manifests: made from what a hub says, whole or not at all, and refused where they could not be right."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hostkit.listing import NoListing, listing
from sandbox import furnish
from sandbox.model_hub.repository import Store
from sandbox.model_hub.running import Hub
from serving.checkpoint import Checkpoint, load_checkpoint
from serving.files import parse
from serving.manifest import with_manifest
from serving.plan import GROUP_DATA
from serving.problems import Refused
from tasks import manifest

REPOSITORY = "owner/Model-V1"
WEIGHTS = "model-00001-of-00002.safetensors"
CHECKPOINTS = GROUP_DATA / "checkpoints"
REVISION, SHA256, BLOB = "a" * 40, "b" * 64, "c" * 40
YAML = f"""\
purpose: a test
repository: {REPOSITORY}
# As somebody pinned it.
revision: {REVISION}
# Read it.
licence: unknown
experts: mxfp4
draft: mtp
# As reported.
size_gb: 158
# No sizes and hashes are known to this project yet.
files: null
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A repository of 53 files, whose listing comes in pages of 20 entries."""
    folder = tmp_path_factory.mktemp("models")
    model = folder / REPOSITORY
    (model / "figures").mkdir(parents=True)
    for number in range(50):
        (model / f"figures/{number}.txt").write_text(str(number))
    (model / WEIGHTS).write_bytes(os.urandom(100_000))
    (model / "config.json").write_text("{}")
    (model / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (folder / f"{REPOSITORY}.json").write_text('{"license": "mit", "date": "2026-05-28T09:00:00.000Z"}')
    with Hub(folder, tmp_path_factory.mktemp("state"), page=20) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_waits(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostkit.listing._PAUSE_S", 0.01)
    hub.set_faults()
    hub.forget()


def make(hub: Hub, into: Path, *words: str) -> int:
    return manifest.main(["--endpoint", hub.endpoint, "--into", str(into), *words])


def test_a_listing_has_all_pages_and_the_hubs_own_hashes(hub: Hub) -> None:
    found = listing(hub.endpoint, REPOSITORY, "main")
    assert len(found["files"]) == 53
    assert len([request for request in hub.requests() if "/tree/" in request["path"]]) == 3
    content = (hub.folder / REPOSITORY / WEIGHTS).read_bytes()
    assert found["files"][WEIGHTS] == {"size": 100_000, "sha256": hashlib.sha256(content).hexdigest()}
    assert found["files"]["config.json"] == {"size": 2, "git_blob_id": "9e26dfeeb6e641a33dae4961196235bdb965b21b"}
    assert (found["licence"], found["date"]) == ("mit", "2026-05-28")
    assert found["total"] == sum(path.stat().st_size for path in hub.folder.rglob("Model-V1/**/*") if path.is_file())
    assert listing(hub.endpoint, REPOSITORY, found["revision"]) == found


@pytest.mark.parametrize(
    ("rules", "repository", "revision", "what", "remedy"),
    [
        ([{"fault": "cut-listing", "page": 20}], REPOSITORY, "main", "lists 19 files and names 53", "HF_ENDPOINT"),
        ([{"fault": "503"}], REPOSITORY, "main", "HTTP 503", "try again later"),
        ([], REPOSITORY, "nowhere", "there is no revision 'nowhere'", "/commits/main"),
        ([], REPOSITORY, REVISION, f"there is no revision '{REVISION}'", "/commits/main"),
        ([], "owner/nothing", "main", "HTTP 401", "token"),
    ],
)
def test_what_a_hub_does_not_say_makes_no_manifest(
    hub: Hub, rules: list[dict[str, Any]], repository: str, revision: str, what: str, remedy: str
) -> None:
    hub.set_faults(*rules)
    with pytest.raises(NoListing) as refusal:
        listing(hub.endpoint, repository, revision)
    text = str(refusal.value)
    assert what in text
    assert remedy in text
    assert "\n" not in text


def test_a_busy_hub_is_asked_again(hub: Hub) -> None:
    hub.set_faults({"fault": "429", "retry_after": 0, "first": 2}, {"fault": "503", "first": 1})
    assert len(listing(hub.endpoint, REPOSITORY, "main")["files"]) == 53


def test_nobody_there_is_one_line() -> None:
    with pytest.raises(NoListing, match="check the endpoint"):
        listing("http://127.0.0.1:9", REPOSITORY, "main")


def test_the_yaml_gets_the_manifest_and_keeps_what_a_person_wrote(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    assert make(hub, tmp_path, "--repo", REPOSITORY, "--rev", "main") == 0
    made = load_checkpoint(tmp_path, "mine")
    assert made.revision == Store(hub.folder).revision(REPOSITORY, "main").commit
    assert (made.licence, made.date, made.draft, made.purpose) == ("mit", "2026-05-28", "mtp", "a test")
    assert made.files is not None
    assert made.total == sum(file.size for file in made.files.values())
    text = (tmp_path / "mine.yaml").read_text()
    for gone in ("As somebody pinned it", "Read it", "As reported", "No sizes and hashes"):
        assert gone not in text
    # A second time it is the same, but for what changed meanwhile: nothing.
    assert make(hub, tmp_path, "--name", "mine") == 0
    assert (tmp_path / "mine.yaml").read_text() == text


def test_a_new_checkpoint_gets_a_yaml_of_its_own(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(hub, tmp_path, "--repo", REPOSITORY) == 2
    assert "add EXPERTS=" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert make(hub, tmp_path, "--repo", REPOSITORY, "--experts", "fp8") == 0
    assert f"main of {REPOSITORY} is commit" in capsys.readouterr().out
    assert load_checkpoint(tmp_path, "model-v1").experts == "fp8"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--rev", "main"], "say which one: REPO="),
        (["--name", "other"], "add REPO=owner/name"),
        (["--name", "mine", "--repo", "owner/another"], "HTTP 401"),
        (["--name", "mine", "--folder", "/nowhere"], "holds no files"),
        (["--name", "mine", "--token-file", "/etc/passwd"], "no file that you alone can read"),
    ],
)
def test_what_makes_no_manifest_leaves_the_yaml_alone(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    assert make(hub, tmp_path, *words) == 2
    assert what in capsys.readouterr().err
    assert (tmp_path / "mine.yaml").read_text() == YAML


def test_a_folder_makes_a_manifest_without_a_hub(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    assert make(hub, tmp_path, "--name", "mine", "--folder", str(hub.folder / REPOSITORY)) == 0
    made = load_checkpoint(tmp_path, "mine")
    assert (made.revision, made.licence) == (REVISION, "unknown")
    assert made.files is not None
    assert all(file.sha256 for file in made.files.values())
    assert "# As somebody pinned it." in (tmp_path / "mine.yaml").read_text()
    assert hub.requests() == []


def test_a_gated_repository_is_listed_with_a_token_that_goes_nowhere_else(hub: Hub, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hf_secret\n")
    token.chmod(0o600)
    (tmp_path / "mine.yaml").write_text(YAML)
    assert make(hub, tmp_path, "--name", "mine", "--rev", "main", "--token-file", str(token)) == 0
    assert all(request["token"] for request in hub.requests(side="hub"))


def test_what_is_shipped_names_no_hash_that_nobody_has_seen() -> None:
    for path in CHECKPOINTS.glob("*.yaml"):
        checkpoint = load_checkpoint(CHECKPOINTS, path.stem)
        assert (checkpoint.files is None) == (path.stem != "sandbox-tiny"), path


def test_the_sandboxs_checkpoint_is_what_its_hub_says(tmp_path: Path) -> None:
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox/tiny").symlink_to(furnish.HERE / "checkpoint/tiny")
    shipped, revision = load_checkpoint(CHECKPOINTS, "sandbox-tiny"), Store(tmp_path).revision("sandbox/tiny", "main")
    assert shipped.revision == revision.commit == furnish.TINY
    assert shipped.files is not None
    assert {name: file.size for name, file in shipped.files.items()} == {
        name: entry.size for name, entry in revision.files.items()
    }


def files_of(**file: Any) -> dict[str, Any]:
    return {"files": {"config.json": {"size": 2, **file}}}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"revision": "main"}, "revision: string should match pattern"),
        ({"revision": "60d8d70"}, "revision: string should match pattern"),
        ({"revision": None, **files_of(sha256=SHA256)}, "files are given for no revision"),
        (files_of(), "has not exactly one of sha256 and git_blob_id"),
        (files_of(sha256=SHA256, git_blob_id=BLOB), "has not exactly one of"),
        (files_of(sha256=BLOB), "files.config.json.sha256: string should match pattern"),
        ({**files_of(sha256=SHA256), "total": 3}, "the files have 2 bytes together, total says 3"),
        ({"files": {}}, "files: dictionary should have at least 1 item"),
        ({"files": {"../x": {"size": 1, "sha256": SHA256}}}, "'../x' is no path below a folder"),
        ({"files": {"/etc/x": {"size": 1, "sha256": SHA256}}}, "'/etc/x' is no path below a folder"),
        ({"repository": "../.."}, "repository: string should match pattern"),
        ({"date": "yesterday"}, "date: string should match pattern"),
        ({"sha256": SHA256}, "sha256: unknown key"),
    ],
)
def test_a_manifest_that_cannot_be_right_is_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse(Checkpoint, {**yaml.safe_load(YAML), **changes}, "mine.yaml")
    assert what in str(refusal.value), refusal.value
    assert all(problem.remedy for problem in refusal.value.problems)


WORD = st.text("aB1 .-_:#'\"{}[]&*!|>%@`é模\u00a0", min_size=1, max_size=8)
FILE = st.integers(0, 10**12).flatmap(
    lambda size: st.sampled_from([{"size": size, "sha256": SHA256}, {"size": size, "git_blob_id": BLOB}])
)
PATHS = st.lists(WORD.filter(lambda word: word not in (".", "..")), min_size=1, max_size=3).map("/".join)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(PATHS, FILE, min_size=1, max_size=5))
def test_whatever_a_hub_names_survives_the_yaml(files: dict[str, Any]) -> None:
    total = sum(file["size"] for file in files.values())
    document = {"repository": REPOSITORY, "revision": "d" * 40, "licence": "mit", "date": None, "total": total}
    assume(total)  # an empty checkpoint is refused: size_gb is more than 0
    text = with_manifest(YAML, {**document, "files": files})
    made = parse(Checkpoint, yaml.safe_load(text), "mine.yaml")
    assert made.wanted_files == files
    assert (made.revision, made.total, made.draft) == ("d" * 40, total, "mtp")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["..", ".", "a", "", "b c", "\x00", "\n"]), min_size=1, max_size=5))
def test_no_name_leads_out_of_the_folder(parts: list[str]) -> None:
    name = "/".join(parts)
    data = {**yaml.safe_load(YAML), "files": {name: {"size": 2, "sha256": SHA256}}}
    try:
        parse(Checkpoint, data, "mine.yaml")
    except Refused:
        return
    assert os.path.normpath(f"/models/x/{name}") == f"/models/x/{name}"
