"""Reads the YAML of group_data/ and checks it against a model: every problem has its file and its key."""

from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from serving.problems import Problem, Refused, nearest

Model = TypeVar("Model", bound=BaseModel)

# Type of a PydanticCustomError that brings its own remedy, and whose value is not shown: it may be a secret.
OWN_WORDS = "own_words"


class Strict(BaseModel):
    """A model that refuses unknown keys, converts nothing silently and cannot be changed once made."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _UniqueKeys(yaml.SafeLoader):
    """YAML that refuses a key given twice, where plain YAML silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, shown: str) -> dict[str, Any]:
    """The mapping in the file. Raises Refused when it is missing, unreadable or not a mapping."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)  # noqa: S506 (a SafeLoader)
    except FileNotFoundError:
        names = [other.stem for other in path.parent.glob("*.yaml")]
        raise Refused([Problem(shown, "", "there is no such file", nearest(path.stem, names))]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else "the file"
        what = getattr(error, "problem", None) or str(error)
        raise Refused([Problem(shown, line, f"not valid YAML ({what})", "correct that line")]) from None
    if not isinstance(data, dict):
        raise Refused([Problem(shown, "", "holds no mapping of keys to values", "write `key: value` lines")])
    return data


def parse(model: type[Model], data: dict[str, Any], shown: str) -> Model:
    """The data as a model. Raises Refused with one problem for each wrong key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Refused(_problem(model, one, shown) for one in error.errors()) from None


def _problem(model: type[BaseModel], error: Any, shown: str) -> Problem:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return Problem(shown, key, "unknown key", nearest(str(error["loc"][-1]), _fields_beside(model, error["loc"])))
    if error["type"] == "missing":
        return Problem(shown, key, "is missing", "add it")
    if error["type"] == OWN_WORDS:
        return Problem(shown, key, error["msg"], error["ctx"]["remedy"])
    return Problem(shown, key, f"{error['msg'].lower()}, not {error['input']!r}", "correct the value")


def _fields_beside(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """The names that would have been known at the place of an unknown key."""
    for part in location[:-1]:
        field = model.model_fields.get(str(part))
        annotations = [field.annotation, *get_args(field.annotation)] if field else []
        models = [one for one in annotations if isinstance(one, type) and issubclass(one, BaseModel)]
        if not models:
            return []
        model = models[0]
    return list(model.model_fields)
