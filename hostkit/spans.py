"""Which bytes of a file are there: disjoint half-open spans, in order."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

Span = tuple[int, int]


class Spans:
    """Not locked: whoever owns it is."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans: list[Span] = []
        for start, end in spans:
            self.add(start, end)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def add(self, start: int, end: int) -> None:
        """Join the span with those that it overlaps or touches."""
        if start >= end:
            return
        first = max(0, bisect_left(self._spans, (start, start)) - 1)
        while first < len(self._spans) and self._spans[first][0] <= end:
            if self._spans[first][1] < start:
                first += 1
                continue
            other = self._spans.pop(first)
            start, end = min(start, other[0]), max(end, other[1])
        insort(self._spans, (start, end))

    def remove(self, start: int, end: int) -> None:
        if start >= end:
            return
        kept = [(a, min(b, start)) for a, b in self._spans] + [(max(a, end), b) for a, b in self._spans]
        self._spans = sorted(span for span in kept if span[0] < span[1])

    def missing(self, size: int) -> Iterator[Span]:
        """The gaps below `size`."""
        at = 0
        for start, end in [*self._spans, (size, size)]:
            if at < min(start, size):
                yield at, min(start, size)
            at = max(at, end)

    @property
    def total(self) -> int:
        return sum(end - start for start, end in self._spans)

    @property
    def prefix(self) -> int:
        """Bytes from the beginning on without a gap."""
        return self._spans[0][1] if self._spans and self._spans[0][0] == 0 else 0
