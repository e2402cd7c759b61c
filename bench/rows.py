"""A measured figure beside what it is compared with in the same run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """value in `unit`; ratio = value / the value of what it is compared with."""

    name: str
    value: float
    unit: str
    compared_with: str
    ratio: float

    def __str__(self) -> str:
        return f"{self.name} | {self.value:.3f} | {self.unit} | {self.compared_with} | {self.ratio:.2f}"
