"""Site settings: what group_data/all.py (and the files of narrower groups) say about a host."""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from serving.files import Strict, parse

WHERE = "group_data"


def _address(text: str) -> str:
    return text if text == "localhost" else str(ipaddress.ip_address(text))


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
    api_key_file: str | None = None


def load_site(data: Mapping[str, Any]) -> Site:
    """The settings without pyinfra's own keys (`ssh_user`, `_sudo`). Raises Refused for an unknown key."""
    own = {key: value for key, value in data.items() if not key.startswith(("_", "ssh_"))}
    return parse(Site, own, WHERE)
