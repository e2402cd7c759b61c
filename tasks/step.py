"""A step of deploy.py: a named group of operations for hosts that have a release."""

from collections.abc import Callable
from typing import Any, cast

from pyinfra.api import deploy

from serving.release import Release

Step = Callable[[Release | None], None]


def step(name: str) -> Callable[[Callable[[Release], None]], Step]:
    """Operations called in the function are shown as "name | ...". A host that was refused has no release: no step."""

    def wrap(function: Callable[[Release], None]) -> Step:
        group = cast(Any, deploy(name))(function)

        def for_hosts_with_a_release(release: Release | None) -> None:
            if release is not None:
                group(release)

        return for_hosts_with_a_release

    return wrap
