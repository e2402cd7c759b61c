"""Site settings: what group_data/all.py (and the files of narrower groups) say about a host."""

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from serving.files import OWN_WORDS, Model, Strict, parse
from serving.problems import Problem, Refused
from serving.secret import Notify

WHERE = "group_data"
# Where a host fetches checkpoints from unless the settings or HF_ENDPOINT say otherwise.
HUB = "https://huggingface.co"
_FOLDER = r"/\S+"
_HOW_TO_NOTIFY = 'write {"webhook": "https://..."} or {"command": ["/path", "word", ...]}, or None'


_PCI = re.compile(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_HOW_TO_NAME = "write it as `nvidia-smi --query-gpu=pci.bus_id --format=csv` shows it, in quotes"


def _pci(text: str) -> str:
    """The address as the kernel writes it; nvidia-smi's 00000000:1B:00.0 is taken too."""
    found = _PCI.fullmatch(text.lower())
    if found is None:
        what = f"{text!r} is no PCI address"
        raise PydanticCustomError(OWN_WORDS, "{what}", {"what": what, "remedy": _HOW_TO_NAME})
    return found[1]


def _disjoint(groups: list[list[str]]) -> list[list[str]]:
    named = [pci for group in groups for pci in group]
    twice = sorted({pci for pci in named if named.count(pci) > 1})
    if twice:
        what = f"overlap: {', '.join(twice)} is named twice"
        raise PydanticCustomError(OWN_WORDS, "{what}", {"what": what, "remedy": "leave each card in one group"})
    return groups


Group = Annotated[list[Annotated[str, AfterValidator(_pci)]], Field(min_length=1)]
GpuGroups = Annotated[list[Group], Field(min_length=1), AfterValidator(_disjoint)]


def _address(text: str) -> str:
    return text if text == "localhost" else str(ipaddress.ip_address(text))


def _notify(setting: Any) -> Notify | None:
    try:
        return None if setting is None else Notify.of(setting)
    except ValueError as problem:
        raise PydanticCustomError(OWN_WORDS, "{what}", {"what": str(problem), "remedy": _HOW_TO_NOTIFY}) from None


def _source(text: str) -> str:
    """A hub or a folder. A URL with a password in it would show up in logs."""
    if not re.fullmatch(rf"https?://[^\s/?#@]+(/[^\s?#@]*)?|{_FOLDER}", text):
        what, remedy = (
            f"{text!r} is neither the URL of a hub nor a folder",
            'write "https://host" or "/folder/on/the/host"',
        )
        raise PydanticCustomError(OWN_WORDS, "{what}", {"what": what, "remedy": remedy})
    return text.rstrip("/")


class Site(Strict):
    """The keys that an operator may set; any other key is refused."""

    profile: str
    models: str = Field(pattern=r"^/[^\s]*[^/\s]$")
    listen: Annotated[str, AfterValidator(_address)]
    port: int = Field(gt=0, lt=65536)
    restart: Literal["allow", "never"]
    gates: Literal["auto", "quick", "full", "none"] = "auto"
    engine: str | None = None
    find_links: str | None = None
    bundle: str | None = Field(default=None, pattern=r"^/[^\s]*[^/\s]$")
    api_key_file: str | None = None
    notify: Annotated[Notify | None, BeforeValidator(_notify)] = None
    evict: bool = False
    deep: bool = False
    gpu_groups: GpuGroups | None = None
    hub_mirrors: list[Annotated[str, AfterValidator(_source)]] | None = None
    adopt: list[Annotated[str, Field(pattern=_FOLDER)]] = Field(default_factory=list)
    hub_token_file: str | None = None
    fetch_streams: int = Field(default=16, gt=0, le=64)

    def __hash__(self) -> int:
        """Hosts with the same settings share a plan; lists among them have no hash of their own."""
        return hash(repr(self))

    @property
    def sources(self) -> list[str]:
        """Where checkpoints come from, in order: hubs by their URL, folders of the host by their path.

        A host that is given a bundle has no network, so nobody waits for a hub unless one is named.
        """
        if self.hub_mirrors is not None:
            return self.hub_mirrors
        return [] if self.bundle else [(os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")]


class LogOptions(Site):
    """What commands/logs.py takes, beside the settings. `since` as journalctl reads it; None: since the last start."""

    lines: int = Field(default=200, gt=0, le=100_000)
    unit: str | None = Field(default=None, pattern=r"^[\w@.:-]+$")
    since: str | None = None


# Settings for one run. In a file they would act again at a time when nobody thinks of them.
ONE_SHOT = ("evict", "deep")


def load_site(data: Mapping[str, Any], from_command_line: Collection[str] = ()) -> Site:
    """The settings of a host; from_command_line are the keys given with `--data`.

    Raises Refused for an unknown key, and for one that is for one run but stands in a file.
    """
    in_a_file = [key for key in ONE_SHOT if key in data and key not in from_command_line]
    if in_a_file:
        what = "stands in a file, and is for one run only"
        raise Refused(Problem(WHERE, key, what, f"take it out; give it with --data {key}=true") for key in in_a_file)
    return load_options(Site, data)


def load_options(model: type[Model], data: Mapping[str, Any]) -> Model:
    """The settings, with a command's own options, without pyinfra's keys (`ssh_user`, `_sudo`). Raises Refused."""
    own = {key: value for key, value in data.items() if not key.startswith(("_", "ssh_"))}
    return parse(model, own, WHERE)
