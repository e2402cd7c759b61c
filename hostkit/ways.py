"""The way of one file through its sources: which one has its turn, which ones failed, and when it is given up."""

from dataclasses import dataclass, field

from hostkit.partial import Part
from hostkit.sources import Source

_TRIES = 3  # at one source without a byte, while there is another one
_WRONG = 2  # copies with wrong content that a source may give of one file


@dataclass(frozen=True)
class Limits:
    """silence_s: no byte comes for so long; slow_s: no block of _BLOCK does. Then the connection is made anew.

    patience_s: no byte comes from anywhere for so long; then the fetch ends. pause_s: the first pause after a failure,
    doubled up to longest_pause_s. sync_s: how much of the work a power cut may take.
    """

    silence_s: float = 30.0
    slow_s: float = 60.0
    patience_s: float = 900.0
    pause_s: float = 1.0
    longest_pause_s: float = 60.0
    sync_s: float = 5.0


class GivenUp(Exception):
    """The rest cannot be had from any source."""


@dataclass
class Wanted:
    """A file and its way through the sources. `ranged`: whether the source gives parts of it, None: not known yet."""

    part: Part
    sources: list[Source]
    ranged: bool | None = None
    streams: int = 0
    failures: int = 0
    not_before: float = 0.0
    refusals: dict[str, str] = field(default_factory=dict)
    givers: set[str] = field(default_factory=set)
    wrong: dict[str, int] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return self.sources[0]

    def asks(self, source: Source) -> bool:
        """Whether it is that one's turn."""
        return self.sources[:1] == [source]

    def move_on(self) -> None:
        """The next source has its turn; this one again after the others."""
        self.sources.append(self.sources.pop(0))
        self.ranged, self.failures = None, 0

    def refuse(self, source: Source, why: str) -> None:
        """Not from there any more. Raises GivenUp when nowhere is left."""
        self.refusals[source.name] = why
        self.sources = [one for one in self.sources if one.name != source.name]
        self.ranged, self.failures = None, 0
        if not self.sources:
            told = "; ".join(f"{name} {reason}" for name, reason in self.refusals.items())
            raise GivenUp(f"{self.part.name} cannot be had: {told}")

    def failed(self, busy: bool) -> None:
        """Its source has failed: the next one has its turn, when this one fails again and again or is busy."""
        if len(self.sources) > 1 and (self.failures >= _TRIES or busy):
            self.not_before = 0.0
            self.move_on()

    def was_wrong(self) -> None:
        """All bytes came, and they are wrong: those that gave some are asked less. Raises GivenUp."""
        givers, self.givers = self.givers, set()
        for source in [one for one in self.sources if one.name in givers]:
            self.wrong[source.name] = self.wrong.get(source.name, 0) + 1
            if self.wrong[source.name] >= _WRONG or len(self.sources) > 1:
                self.refuse(source, "gives other content than the manifest says")
