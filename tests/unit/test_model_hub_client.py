"""The hub's own client, unchanged, downloads from the local model hub: what passes for the real one here is no toy."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.model_hub.running import Hub

REPOSITORY = "owner/model"
WEIGHTS = "model-00001-of-00001.safetensors"
SIZE = 16_000_000  # more than the 10 MiB that the client takes at a time: less than that is not kept
TOKEN = "hf_granted"
# In a process of its own: the client reads HF_ENDPOINT and its like once, when it is imported.
SCRIPT = """
import sys
from huggingface_hub import snapshot_download
print(snapshot_download(sys.argv[1], revision=sys.argv[2], local_dir=sys.argv[3]))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    model = folder / REPOSITORY
    (model / "figures").mkdir(parents=True)
    (model / WEIGHTS).write_bytes(os.urandom(SIZE))
    (model / "config.json").write_text('{"model_type": "none"}\n')
    (model / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (model / "figures/a b.txt").write_text("a name with a space, in a folder\n")
    return folder


@pytest.fixture(scope="module")
def hub(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with Hub(models, tmp_path_factory.mktemp("state"), page=2) as running:
        yield running


def download(hub: Hub, target: Path, revision: str = "main", token: str = "") -> subprocess.CompletedProcess[str]:
    own = {"HF_HOME": f"{target}-home", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment = {**os.environ, **own, "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": token}
    command = [sys.executable, "-c", SCRIPT, REPOSITORY, revision, str(target)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_it_downloads_a_repository_whole(hub: Hub, models: Path, tmp_path: Path) -> None:
    hub.set_faults()
    done = download(hub, tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "whole") == contents(models / REPOSITORY)
    # A commit is all that it needs next time.
    commit = Path(tmp_path / "whole/.cache/huggingface/download" / f"{WEIGHTS}.metadata").read_text().split()[0]
    done = download(hub, tmp_path / "again", revision=commit)
    assert done.returncode == 0, done.stderr


def test_it_goes_on_where_a_connection_was_cut(hub: Hub, models: Path, tmp_path: Path) -> None:
    hub.set_faults({"fault": "truncated", "file": WEIGHTS, "first": 1, "after": 14_000_000})
    hub.forget()
    done = download(hub, tmp_path / "resumed")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "resumed") == contents(models / REPOSITORY)
    first, second = hub.requests(file=WEIGHTS, side="cdn", method="GET")
    assert (first["sent"], first["fault"]) == (14_000_000, "truncated")
    assert second["status"] == 206
    assert 0 < second["range"][0] < 14_000_000


def test_a_gated_repository_is_for_those_with_the_right_token(hub: Hub, models: Path, tmp_path: Path) -> None:
    hub.set_faults({"fault": "gated", "token": TOKEN})
    hub.forget()
    refused = download(hub, tmp_path / "refused", token="hf_somebody_else")
    assert refused.returncode != 0
    assert "GatedRepoError" in refused.stderr
    done = download(hub, tmp_path / "granted", token=TOKEN)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "granted") == contents(models / REPOSITORY)
    assert not any(request["token"] for request in hub.requests(side="cdn"))
