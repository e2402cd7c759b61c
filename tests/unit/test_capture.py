"""Evidence is taken in bounded time, whatever hangs, and holds no key."""

import json
import threading
import time
from pathlib import Path

from hostkit import capture, redact, side_by_side
from hostkit.side_by_side import Part, Say

KEY = "planted-0123456789abcdef-key"


def hangs(say: Say) -> None:
    say("what it said before")
    threading.Event().wait(60)


def fails(say: Say) -> None:
    raise FileNotFoundError("nvidia-smi")


def part(name: str, tell: object, limit_s: float = 0.3, file: str = "file.txt") -> Part:
    assert callable(tell)
    return Part(name, file, limit_s, tell)


def test_a_part_that_hangs_is_left_and_the_others_are_whole() -> None:
    began = time.monotonic()
    taken = side_by_side.take([part("stuck", hangs), part("well", lambda say: say("all of it"))], began + 60)
    assert time.monotonic() - began < 5
    assert [(one.part.name, list(one.said), one.why_left_out) for one in taken] == [
        ("stuck", ["what it said before"], "did not end within its 0.3 s"),
        ("well", ["all of it"], None),
    ]


def test_many_parts_that_hang_cost_no_more_than_the_limit_of_all() -> None:
    began = time.monotonic()
    side_by_side.take([part(f"stuck {number}", hangs, limit_s=30) for number in range(50)], began + 0.5)
    assert 0.5 <= time.monotonic() - began < 5


def test_a_part_that_fails_says_why() -> None:
    [taken] = side_by_side.take([part("nvidia-smi", fails)], time.monotonic() + 5)
    assert taken.why_left_out == "FileNotFoundError: nvidia-smi"


def test_parts_of_one_file_stand_in_it_in_order_without_the_key(tmp_path: Path) -> None:
    parts = [part("1", lambda say: say(f"Bearer {KEY}!")), part("2", lambda say: say("second"))]
    capture.write(tmp_path, side_by_side.take(parts, time.monotonic() + 5), [KEY])
    [file] = tmp_path.iterdir()
    assert file.read_text() == "Bearer (redacted)!\nsecond\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_fields_named_like_secrets_are_hidden_at_any_depth() -> None:
    info = {
        "api_key": KEY,
        "admin_api_key": None,
        "tokenizer_path": "/srv",
        "internal_states": [{"server_args": {"api_key": KEY, "ssl_keyfile_password": "x"}}],
    }
    hidden = redact.fields(info)
    assert KEY not in json.dumps(hidden)
    assert hidden["internal_states"][0]["server_args"] == {
        "api_key": redact.HIDDEN,
        "ssl_keyfile_password": "(redacted)",
    }
    assert (hidden["admin_api_key"], hidden["tokenizer_path"]) == (None, "/srv")
