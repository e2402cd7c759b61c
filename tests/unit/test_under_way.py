"""What is under way on a host, and how far it is, as whoever asks sees it."""

import json
from pathlib import Path

import pytest

from hostkit import paths, under_way
from hostkit.events import Progress
from serving import schemas
from tasks import follow


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Progress:
    monkeypatch.setattr(paths, "RUN", tmp_path)
    place = tmp_path / "jobs/checkpoint"
    (place / "1234").mkdir(parents=True)
    (place / "current.json").write_text(json.dumps({"job": "1234"}))
    return Progress(place / "1234")


def test_the_last_event_of_a_job_is_told_in_a_line(job: Progress) -> None:
    assert under_way.last_event("checkpoint") is None
    for number in range(200):
        job.tell("checkpoint", f"{number} of 158.0 GB", percent=number / 2, eta_s=600)
    event = under_way.last_event("checkpoint")
    assert under_way.in_words("checkpoint", event) == "checkpoint: 100 %, 199 of 158.0 GB, about 600 s left"
    assert str(schemas.Event.model_validate(event)) == "100 %, 199 of 158.0 GB, about 10 min left"


def test_a_line_that_is_being_written_is_left_out(job: Progress) -> None:
    job.tell("checkpoint", "whole")
    with (job.folder / "events.jsonl").open("a") as file:
        file.write('{"t": 1')
    event = under_way.last_event("checkpoint")
    assert event is not None and event["message"] == "whole"


def test_a_job_that_nobody_knows_has_none(job: Progress) -> None:
    assert under_way.last_event("engine") is None


@pytest.mark.parametrize("percent", [0.0, 43.0, 100.0])
def test_a_bar_is_as_long_as_its_line(percent: float) -> None:
    drawn = follow._bar(percent)
    assert sum(drawn.count(mark) for mark in "━╺╸") == follow._BAR_WIDTH
    assert "\n" not in drawn
