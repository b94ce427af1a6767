"""Entry: what an item should have in a sparse index, and what of the item that hangs on. Pure.

A declaration is compiled into one closure, `f` of an image. It never looks at the attributes of an entry, its own or
another sparse index's of the table: so what is written to an item changes nothing of what its entries should be, and a
write settles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from framework.codec import AttributeValue, Image, decode, encode, from_event, is_text
from framework.conditions import Attribute
from framework.errors import BadRecordError, BadValueError, raised, shortened
from framework.lanes import MARK
from framework.paths import getter, parse
from framework.sparse import MOST_READ, SparseDeclaration, wrong_key

__all__ = ["Place", "as_seen", "compile_entry", "compile_there"]

Entry = dict[str, AttributeValue]
_NOTHING: AttributeValue = {}


@dataclass(frozen=True, slots=True)
class Place:
    """What an item should have in the index.

    Attributes:
        entry: Each attribute of its entry, as a boto3 client takes it; None where it should have none.
        looked_at: The names of the item's attributes that this hangs on, in order; some may be missing. Where it hangs
            on more than can stand in a condition, as many as can.
        reason: Why its entry cannot be told; then it should have none. Empty where it can.
    """

    entry: Entry | None
    looked_at: tuple[str, ...]
    reason: str = ""


def compile_entry(declaration: SparseDeclaration) -> Callable[[Image], Place | None]:
    """Compile a declaration.

    An item that would have an entry in several of those that share an index has none, for it can hold but one. So an
    entry hangs on what these look at as well; that there is none in the first place does not.

    Returns:
        A function of an image, of an event or a client, to the item's place; None for an item that Streamfold itself
        wrote, which is in no sparse index.
    """
    alone, name = _alone(declaration), declaration.index.name
    siblings = [(each.name, _alone(each)) for each in declaration.siblings]
    # A key of the table is the same for all versions of an item, and what is hidden is not looked at.
    never = {*_unseen(declaration), *declaration.source.keys}

    def place(image: Image) -> Place | None:
        if MARK in image:
            return None
        looked_at = set[str]()
        found, reason = alone(image, looked_at)
        if found is not None:
            others = [other for other, its in siblings if its(image, looked_at)[0] is not None]
            if others:
                among = f"one in one of the sparse indexes that share {name!r}"
                found, reason = (
                    None,
                    f"entry: expected {among}, came one in {declaration.name!r} and one in {others[0]!r}",
                )
        names = tuple(sorted(looked_at - never))
        if len(names) > MOST_READ:
            # Without all of them in its condition, no entry may be written.
            found, reason = None, f"entry: expected to look at {MOST_READ} attributes at most, came {len(names)}"
        return Place(found, names[:MOST_READ], reason)

    return place


def _alone(declaration: SparseDeclaration) -> Callable[[Image, set[str]], tuple[Entry | None, str]]:
    """A function of an image to its entry, if this were alone, or why that cannot be told; notes what it looks at."""
    when = declaration.when.compile() if declaration.when is not None else None
    entry = _declared(declaration) if declaration.entry is None else _called(declaration)
    asked = [str(parse(path)[0]) for path in declaration.paths]

    def alone(image: Image, looked_at: set[str]) -> tuple[Entry | None, str]:
        looked_at.update(asked)
        try:
            found = _prefixed(declaration, entry(image, looked_at)) if when is None or when(image) else None
        except (BadRecordError, BadValueError) as error:
            return None, str(error)
        return found, ""

    return alone


def as_seen(image: Image, place: Place) -> dict[str, AttributeValue | None]:
    """The attributes that an item's place hangs on, as a boto3 client takes them; None for one that is missing."""
    there = from_event({name: image[name] for name in place.looked_at if name in image})
    return {name: there.get(name) for name in place.looked_at}


def compile_there(declaration: SparseDeclaration) -> Callable[[Image, Entry | None], bool]:
    """Compile a declaration.

    Returns:
        A function of an image and an entry, which tells whether the item has exactly this: all of its attributes, or
        none of them. An attribute of another type than the index's key is none of an entry: the index does not hold it.
        What begins as the entries of another that shares the index is that one's, and none of this one's.
    """
    kinds = [(name, kind) for name, (kind, _) in declaration.managed.items()]
    pk, theirs = declaration.index.pk, tuple(each.index.prefix for each in declaration.siblings)

    def is_there(image: Image, entry: Entry | None) -> bool:
        if entry is None and theirs and image.get(pk, _NOTHING).get("S", "").startswith(theirs):
            return True
        for name, kind in kinds:
            came = image.get(name)
            there = came is not None and kind in came
            if entry is None:
                if there:
                    return False
            elif came is None or not there or (came != entry[name] and decode(came) != decode(entry[name])):
                return False
        return True

    return is_there


def _unseen(declaration: SparseDeclaration) -> frozenset[str]:
    """What an entry cannot hang on, for it is written by sparse indexes."""
    return declaration.hidden.union(declaration.managed)


def _prefixed(declaration: SparseDeclaration, entry: Entry | None) -> Entry | None:
    if entry is None or not declaration.index.prefix:
        return entry
    found, pk = declaration.prefixed(entry), declaration.index.pk
    reason = wrong_key(found[pk], declaration.managed[pk])
    if reason is not None:
        raise BadRecordError(f"entry: {pk}: {reason} with the prefix, came {shortened(found[pk]['S'])}")
    return found


def _declared(declaration: SparseDeclaration) -> Callable[[Image, set[str]], Entry | None]:
    managed = declaration.managed
    fixed: Entry = {}
    copied = []
    for name, held in (declaration.holds or {}).items():
        if isinstance(held, Attribute):
            copied.append((name, held.path, getter(held.path)))
        else:
            fixed[name] = held

    def entry(image: Image, looked_at: set[str]) -> Entry:
        found = {}
        for name, path, get in copied:
            value = get(image)
            if value is None:
                raise BadRecordError(f"attribute {path!r} is missing")
            found[name] = encode(decode(value))
            reason = wrong_key(found[name], managed[name])
            if reason is not None:
                raise BadRecordError(f"attribute {path!r}: {reason} for {name!r}, came {shortened(value)}")
        return {**fixed, **found}

    return entry


def _called(declaration: SparseDeclaration) -> Callable[[Image, set[str]], Entry | None]:
    function, managed, unseen = declaration.entry, declaration.managed, _unseen(declaration)
    assert function is not None

    def entry(image: Image, looked_at: set[str]) -> Entry | None:
        item = _Item({name: value for name, value in image.items() if name not in unseen}, looked_at)
        try:
            found = function(item)
        except Exception as error:  # whatever a user's code raises belongs to the item that it was given
            raise BadRecordError(f"entry: expected an entry, came {raised(error)}") from error
        if found is None:
            return None
        if not isinstance(found, Mapping) or found.keys() != managed.keys():
            names = " and ".join(map(repr, managed))
            raise BadRecordError(f"entry: expected exactly {names}, or None, came {shortened(found)}")
        return {name: _key(name, found[name], managed[name]) for name in managed}

    return entry


def _key(name: str, came: object, key: Any) -> AttributeValue:
    try:
        value = encode(came)
    except BadValueError as error:
        raise BadRecordError(f"entry: {name}: {error}") from None
    reason = wrong_key(value, key)
    if reason is not None:
        raise BadRecordError(f"entry: {name}: {reason}, came {shortened(came)}")
    return value


class _Item(Mapping[str, Any]):
    """An item as an `entry` function gets it: its attributes are decoded, and noted, as they are looked at.

    A mapping and no `dict`, since C code reads a `dict` without a word.
    """

    def __init__(self, image: Image, looked_at: set[str]) -> None:
        self._image = image
        self._looked_at = looked_at
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            if is_text(name, 1, 65_535):  # any other is none that an item could have
                self._looked_at.add(name)
            self._values[name] = decode(self._image[name])
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self._looked_at.update(self._image)
        return iter(self._image)

    def __len__(self) -> int:
        self._looked_at.update(self._image)
        return len(self._image)

    def __repr__(self) -> str:
        return repr(dict(self))
