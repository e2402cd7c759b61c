"""A file's bytes on their way out: ranges, the link's rate, and what goes wrong on the way."""

from __future__ import annotations

import os
import re
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from sandbox.model_hub.exchange import Exchange, Reply
from sandbox.model_hub.faults import BODY, Rule
from sandbox.model_hub.pace import Pace

_LEAST, _MOST = 16 << 10, 4 << 20  # bytes of a piece; as much as goes in a few milliseconds
_PIECE_S = 0.002
_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_FLIPPED = 16


def send_file(exchange: Exchange, path: Path, headers: dict[str, str]) -> None:
    """Answer with a file or the range asked for. Raises Reply (416)."""
    note, size = exchange.note, path.stat().st_size
    rule = None
    if exchange.command == "GET":
        find = exchange.context.faults.find
        rule = find(*BODY, repository=note["repository"], file=note["file"], on="file")
    note["fault"] = rule and rule.fault
    fault = note["fault"]
    if fault == "wrong-length":
        assert rule
        size = max(0, size + rule.by)
    asked = None if fault == "no-ranges" else _asked(exchange, size, headers["ETag"])
    start, end = asked or (0, size)
    note["range"] = [start, end]
    ranges = {} if fault == "no-ranges" else {"Accept-Ranges": "bytes"}
    part = {"Content-Range": f"bytes {start}-{end - 1}/{size}"} if asked else {}
    exchange.start(206 if asked else 200, {**headers, **ranges, **part, "Content-Length": str(end - start)})
    if exchange.command == "GET":
        _send_bytes(exchange, path, start, end, rule)


def _asked(exchange: Exchange, size: int, etag: str) -> tuple[int, int] | None:
    """The range asked for, its end excluded. Several ranges, or those of another ETag, are answered with the whole."""
    match = _RANGE.match(exchange.headers.get("range") or "")
    if not match or exchange.headers.get("if-range", etag) != etag or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        raise Reply(416, "Range Not Satisfiable", headers={"Content-Range": f"bytes */{size}"})
    return start, end


def _send_bytes(exchange: Exchange, path: Path, start: int, end: int, rule: Rule | None) -> None:
    fault = rule.fault if rule else ""
    stop = end
    if rule and fault in ("stall", "reset", "truncated"):
        stop = min(end, start + (rule.after if rule.after is not None else (end - start) // 2))
    slow = Pace(rule.rate) if rule and fault == "slow" else None
    with path.open("rb") as file:
        for offset, count in _pieces(start, stop, slow or exchange.context.pace):
            exchange.context.pace.wait(count)
            if slow:
                slow.wait(count)
            if rule and fault == "wrong-bytes":
                _send_flipped(exchange, file.fileno(), offset, count, rule.at)
            else:
                _send_piece(exchange, file.fileno(), offset, count)
    if stop < end:
        assert rule
        _break_off(exchange, rule)


def _pieces(start: int, end: int, pace: Pace) -> Iterator[tuple[int, int]]:
    size = min(_MOST, max(_LEAST, int(pace.rate * _PIECE_S))) if pace.rate else _MOST
    for offset in range(start, end, size):
        yield offset, min(size, end - offset)


def _send_piece(exchange: Exchange, file: int, offset: int, count: int) -> None:
    connection = exchange.connection.fileno()
    while count:
        sent = os.sendfile(connection, file, offset, count)
        if not sent:  # past the file's end: an answer of a wrong length
            exchange.wfile.write(bytes(count))
            sent = count
        exchange.note["sent"] += sent
        offset, count = offset + sent, count - sent


def _send_flipped(exchange: Exchange, file: int, offset: int, count: int, at: int | None) -> None:
    at = os.fstat(file).st_size // 2 if at is None else at
    data = bytearray(os.pread(file, count, offset))
    for index in range(max(at - offset, 0), min(at - offset + _FLIPPED, len(data))):
        data[index] ^= 0xFF
    exchange.wfile.write(data)
    exchange.note["sent"] += len(data)


def _break_off(exchange: Exchange, rule: Rule) -> None:
    exchange.close_connection = True
    if rule.fault == "stall":
        select.select([exchange.connection], [], [], rule.seconds)  # until the client has enough of it
    if rule.fault == "reset":
        exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
