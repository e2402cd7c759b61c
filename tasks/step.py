"""pyinfra's @deploy with the type of the function it wraps: a named group of operations."""

from collections.abc import Callable
from typing import Any, ParamSpec, cast

from pyinfra.api import deploy

P = ParamSpec("P")


def step(name: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Operations called in the function are shown as "name | ..."."""

    def wrap(function: Callable[P, None]) -> Callable[P, None]:
        return cast(Callable[P, None], cast(Any, deploy(name))(function))

    return wrap
