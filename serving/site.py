"""Site settings: what group_data/all.py (and the files of narrower groups) say about a host."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from serving.files import Strict, parse

WHERE = "group_data"


class Site(Strict):
    """The keys that an operator may set; any other key is refused."""

    profile: str
    models: str = Field(pattern=r"^/[^\s]*[^/\s]$")
    listen: str
    port: int = Field(gt=0, lt=65536)
    restart: Literal["allow", "never"]
    engine: str | None = None
    find_links: str | None = None
    api_key_file: str | None = None


def load_site(data: Mapping[str, Any]) -> Site:
    """The settings without pyinfra's own keys (`ssh_user`, `_sudo`). Raises Refused for an unknown key."""
    own = {key: value for key, value in data.items() if not key.startswith(("_", "ssh_"))}
    return parse(Site, own, WHERE)
