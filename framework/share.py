"""Share: what one image counts for, the `f` of the fold. Pure; a declaration is compiled into one closure."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from framework.codec import AttributeValue, Image, decode_item, number
from framework.declaration import Declaration, group_text, join
from framework.errors import BadRecordError, raised, shortened
from framework.lanes import MARK, owner
from framework.measures import Number
from framework.paths import getter, top_level

__all__ = ["Share", "Values", "compile_share"]

Values = tuple[Number, ...]
# The group and the window's label, and a value for each slot.
Share = tuple[tuple[str, str], Values]


def compile_share(declaration: Declaration) -> Callable[[Image], Share | None]:
    """Compile a declaration.

    Returns:
        A function of an image to what it counts for, or None if it does not. It raises `BadRecordError` or
        `BadValueError` if the image cannot be counted.
    """
    matches = declaration.where.compile() if declaration.where is not None else None
    group = _compile_group(declaration)
    label = declaration.window.compile()
    values = _compile_values(declaration)
    constant = tuple(1 for _ in declaration.slots) if values is None else None
    mark = MARK

    def share(image: Image) -> Share | None:
        # What Streamfold wrote never counts.
        if (mark in image and owner(image) is not None) or (matches is not None and not matches(image)):
            return None
        found = group(image)
        if found is None:
            return None
        if constant is not None:
            return (found, label(image)), constant
        assert values is not None
        return (found, label(image)), values(image)

    return share


def _compile_group(declaration: Declaration) -> Callable[[Image], str | None]:
    if not isinstance(declaration.group_by, tuple):
        return _group_by_function(declaration)
    readers = [_group_reader(path, declaration) for path in declaration.group_by]
    if len(readers) == 1:
        return readers[0]

    def several(image: Image) -> str:
        return declaration.checked(join(tuple([read(image) for read in readers])))

    return several


def _group_reader(path: str, declaration: Declaration) -> Callable[[Image], str]:
    key_type, checked, short = declaration.target.pk_type, declaration.checked, declaration.most_group_bytes // 4
    get, name = getter(path), top_level(path)

    def read(image: Image) -> str:
        return checked(_scalar_text(path, get(image), key_type))

    if name is None or key_type != "S":
        return read

    def read_text(image: Image) -> str:
        # Nearly every group is text at the top of the item, and each record asks: no call is made for it.
        try:
            text: str = image[name]["S"]
        except KeyError:
            return read(image)
        # A character has at most 4 bytes.
        return text if text and len(text) <= short else read(image)

    return read_text


def _scalar_text(path: str, value: AttributeValue | None, key_type: str) -> str:
    match value:
        case None:
            raise BadRecordError(f"attribute {path!r} is missing")
        case {"S": str(text)} if key_type == "S":
            return text
        case {"N": str(text)}:
            return group_text(number(text), "N" if key_type == "N" else "S")
        case {"BOOL": bool(truth)} if key_type == "S":
            return group_text(truth)
    expected = "a number" if key_type == "N" else "text, a number or a boolean"
    raise BadRecordError(f"attribute {path!r}: expected {expected}, came {shortened(value)}")


def _group_by_function(declaration: Declaration) -> Callable[[Image], str | None]:
    function = declaration.group_by
    assert callable(function)

    def call(image: Image) -> str | None:
        item = decode_item(image)
        try:
            found = function(item)
        except Exception as error:  # whatever a user's code raises belongs to the record that it was given
            raise BadRecordError(f"group_by: expected a group, came {raised(error)}") from error
        if found is None:
            return None
        if isinstance(found, tuple):
            if not found:
                raise BadRecordError("group_by: expected a value or a tuple of values, came ()")
            texts = tuple(map(group_text, found))
            return declaration.checked(texts[0] if len(texts) == 1 else join(texts))
        return declaration.checked(group_text(found, declaration.target.pk_type))

    return call


def _compile_values(declaration: Declaration) -> Callable[[Image], Values] | None:
    """A reader of a value for each slot; None if each is 1."""
    if all(slot.of is None for slot in declaration.slots):
        return None
    readers = [None if slot.of is None else _number_reader(slot.of) for slot in declaration.slots]

    def values(image: Image) -> Values:
        return tuple([1 if read is None else read(image) for read in readers])

    return values


def _number_reader(path: str) -> Callable[[Image], Decimal]:
    get = getter(path)

    def read(image: Image) -> Decimal:
        value = get(image)
        if value is None:
            raise BadRecordError(f"attribute {path!r} is missing")
        text = value.get("N")
        if text is None:
            raise BadRecordError(f"attribute {path!r}: expected a number, came {shortened(value)}")
        return number(text)

    return read
