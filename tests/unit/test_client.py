"""The client on the host, against a real HTTP server that says what SGLang said, or does not."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hostkit import client

STREAM = (Path(__file__).parent.parent / "data" / "cpu-0.5.23" / "chat_stream.txt").read_bytes()
GATES = {"question": "What is 2+2? Answer with the number only.", "answer": "4"}


@contextmanager
def server(status: int = 200, body: bytes = STREAM, pause_s: float = 0) -> Iterator[client.Server]:
    """Sends `body` in chunks, line by line, as uvicorn does; yields where it is."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with suppress(ConnectionError):  # the client has given up
                self.write_chunks()

        do_POST = do_GET  # noqa: N815 (the name that the handler looks for)

        def write_chunks(self) -> None:
            for line in [*body.splitlines(keepends=True), b""]:
                time.sleep(pause_s)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

        def log_message(self, *_arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield client.Server(f"http://127.0.0.1:{http.server_port}")
        http.shutdown()


def test_the_streamed_answer_of_the_real_server_is_read_whole() -> None:
    with server() as base:
        answer = client.ask(base, "tiny", GATES, within_s=5)
    assert (answer.text, answer.tokens) == ("4", 2)


def test_another_answer_is_a_wrong_answer() -> None:
    with server() as base, pytest.raises(client.WrongAnswer, match="instead of '5'"):
        client.ask(base, "tiny", {**GATES, "answer": "5"}, within_s=5)


def test_an_error_of_the_server_is_told_with_its_text() -> None:
    with server(status=503, body=b"no worker") as base:
        assert client.status(base, "/health", within_s=5) == 503
        with pytest.raises(client.WrongAnswer, match="HTTP 503: no worker"):
            client.ask(base, "tiny", GATES, within_s=5)
        with pytest.raises(client.WrongAnswer, match="/v1/models: HTTP 503"):
            client.get_json(base, "/v1/models", within_s=5)


def test_a_stream_that_goes_on_too_long_is_given_up() -> None:
    with server(pause_s=0.1) as base, pytest.raises(client.WrongAnswer, match="no whole answer within"):
        client.ask(base, "tiny", GATES, within_s=0.25)


def test_a_server_that_says_nothing_is_given_up() -> None:
    with server(pause_s=1) as base, pytest.raises(client.WrongAnswer, match="no answer from"):
        client.ask(base, "tiny", GATES, within_s=0.2)


def test_nobody_there_is_no_status_and_no_answer() -> None:
    with server() as base:
        pass
    assert client.status(base, "/health", within_s=5) is None
    with pytest.raises(client.WrongAnswer, match="no answer from"):
        client.ask(base, "tiny", GATES, within_s=5)


def test_a_proxy_of_the_environment_is_not_asked_about_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with server(body=b'{"data": []}') as base:
        assert client.get_json(base, "/v1/models", within_s=5) == {"data": []}
