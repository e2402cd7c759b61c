"""Takes secrets out of what is kept or sent: by the name of their field, and by their text wherever it stands."""

import re
from typing import Any

_SECRET_FIELD = re.compile(r"api_key|password|secret|credential", re.IGNORECASE)
HIDDEN = "(redacted)"


def text(content: str, secrets: list[str]) -> str:
    for secret in secrets:
        content = content.replace(secret, HIDDEN)
    return content


def fields(value: Any) -> Any:
    """The JSON value without the values of fields that are named like secrets, at any depth."""
    if isinstance(value, dict):
        return {key: HIDDEN if item and _SECRET_FIELD.search(key) else fields(item) for key, item in value.items()}
    return [fields(item) for item in value] if isinstance(value, list) else value
