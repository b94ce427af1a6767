"""Checker: what a handler's class declares is checked field by field, whichever kind of handler it is."""

from __future__ import annotations

import inspect
import re
from typing import Any, ClassVar

from framework.conditions import Condition
from framework.errors import DeclarationError, shortened
from framework.measures import Measure
from framework.paths import getter
from framework.tables import Index, Table
from framework.windows import Window

__all__ = ["NAME", "NAME_RULE", "NOTHING", "Checker", "Text"]

NAME_RULE = "lower-case letters, digits and hyphens, at most 63, letter first"
NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_POSITIONAL, _EITHER = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
_MEMBERS = (classmethod, staticmethod, property)
# What only a field can be for.
_OF_A_FIELD = (Condition, Index, Table, Window)


class Text:
    """Stands in a message as it is, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


NOTHING = Text("nothing")


class Checker:
    """Checks one subclass of a kind of handler.

    Args:
        cls: The subclass.

    Attributes:
        root: The class that users subclass.
        kind: What such a subclass is, in words.
    """

    root: ClassVar[type]
    kind: ClassVar[str]

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def wrong(self, field: str, expected: str, came: object) -> DeclarationError:
        """The error that a field is something else than expected."""
        return DeclarationError(f"{self.cls.__qualname__}.{field}: expected {expected}, came {shortened(came)}")

    def field(self, field: str, kind: type, expected: str, *, optional: bool = False) -> Any:
        """A field's value, of a type."""
        value = getattr(self.cls, field, NOTHING)
        if isinstance(value, kind) or (optional and value is None):
            return value
        raise self.wrong(field, expected, value)

    def choice(self, field: str, choices: tuple[str, ...]) -> Any:
        """A field's value, one of some."""
        value = getattr(self.cls, field)
        if value not in choices:
            raise self.wrong(field, " or ".join(map(repr, choices)), value)
        return value

    def name(self) -> str:
        """The handler's name."""
        name = getattr(self.cls, "name", NOTHING)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self.wrong("name", NAME_RULE, name)
        return name

    def most_bad(self) -> float:
        """The share of a batch that may be bad records."""
        share = self.cls.most_bad
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise self.wrong("most_bad", "a number from 0 to 1", share)
        return float(share)

    def function(self, field: str, expected: str) -> Any:
        """What stands under a field; a function, static or not, if it takes an item."""
        found: Any = inspect.getattr_static(self.cls, field, NOTHING)
        if isinstance(found, staticmethod):
            found = found.__func__
        if inspect.isfunction(found):
            signature = inspect.signature(found)
            kinds = [parameter.kind for parameter in signature.parameters.values()]
            if len(kinds) != 1 or kinds[0] not in (_POSITIONAL, _EITHER):
                raise self.wrong(field, expected, Text(f"def {found.__name__}{signature}"))
        return found

    def check_path(self, field: str, path: object) -> None:
        """See that a field's value is the path of an attribute."""
        if not isinstance(path, str):
            raise self.wrong(field, "an attribute name", path)
        try:
            getter(path)
        except DeclarationError as error:
            raise DeclarationError(f"{self.cls.__qualname__}.{field}: {error}") from None

    def names(self) -> dict[str, None]:
        """Every public name of the class and what it is derived from."""
        found = (name for base in reversed(self.cls.__mro__) for name in vars(base))
        return dict.fromkeys(name for name in found if not name.startswith("_"))

    def refuse_unknown_fields(self) -> None:
        """A value that only a field can be for, under a name that no field has, is a slip of the pen."""
        for name in self.names():
            value = getattr(self.cls, name, None)
            if hasattr(self.root, name) or name in self.root.__annotations__:
                continue
            if isinstance(value, type) and issubclass(value, Measure):
                raise self.wrong(name, f"a measure such as {value.__name__}(...)", Text(f"the class {value.__name__}"))
            if isinstance(value, Measure) or callable(value) or isinstance(value, _MEMBERS):
                continue
            import difflib

            # Any other value may be a user's own, unless its name is nearly that of a field.
            close = difflib.get_close_matches(name, self.root.__annotations__, 1, 0.8)
            if close or isinstance(value, _OF_A_FIELD):
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                raise self.wrong(name, f"a field that {self.kind} has{hint}", value)
