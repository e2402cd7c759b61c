"""Site settings: what group_data/all.py (and the files of narrower groups) say about a host."""

import ipaddress
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from serving.files import Strict, parse
from serving.problems import Problem, Refused

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
    engine: str | None = None
    find_links: str | None = None
    api_key_file: str | None = None
    evict: bool = False


# Settings for one run. In a file they would act again at a time when nobody thinks of them.
ONE_SHOT = ("evict",)


def load_site(data: Mapping[str, Any], from_command_line: Collection[str] = ()) -> Site:
    """The settings without pyinfra's own keys (`ssh_user`, `_sudo`).

    from_command_line are the keys given with `--data`. Raises Refused for an unknown key, and for one that is for
    one run but stands in a file.
    """
    own = {key: value for key, value in data.items() if not key.startswith(("_", "ssh_"))}
    in_a_file = [key for key in ONE_SHOT if key in own and key not in from_command_line]
    if in_a_file:
        what = "stands in a file, and is for one run only"
        raise Refused(Problem(WHERE, key, what, f"take it out; give it with --data {key}=true") for key in in_a_file)
    return parse(Site, own, WHERE)
