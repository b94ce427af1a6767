"""The grammar of DynamoDB's expressions: from text to a tree of plain values.

    condition  = and {OR and};  and = not {AND not};  not = NOT not | "(" condition ")" | test
    test       = operand (= | <> | < | <= | > | >=) operand | operand BETWEEN operand AND operand
               | operand IN "(" operand {"," operand} ")" | function "(" operand {"," operand} ")"
    operand    = path | :value | size "(" operand ")" update     = {SET path = sum {"," ...} | REMOVE path
    {"," ...} | ADD path :value ... | DELETE path :value ...} sum        = term [(+ | -) term];  term = path |
    :value | if_not_exists(path, term) | list_append(term, term) path       = name {"." name | "[" index "]"};
    name = identifier | #placeholder

AWS facts: DynamoDB developer guide, "Syntax for filter and condition expressions" and "Update expressions".
Functions are case-sensitive, keywords are not (read in ScyllaDB's Alternator tests, which are run against the
service itself, as are the limits on what a function takes).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from framework.local.reserved import RESERVED
from framework.local.syntax import (
    Action,
    And,
    Arithmetic,
    Between,
    Compare,
    IfNotExists,
    In,
    ListAppend,
    Not,
    Operand,
    Or,
    Path,
    Size,
    Test,
    Tree,
    Value,
    Verb,
)
from framework.local.values import RefusedError

__all__ = ["Parser"]

_LONGEST = 4096  # bytes of one expression
_MOST_OPTIONS = 100  # operands of one IN, the first one included
_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_]*|[#:][A-Za-z0-9_]+|[0-9]+|<>|<=|>=|[=<>()\[\],.+-]")
_NAME = re.compile(r"#?[A-Za-z0-9_]+").fullmatch
_COMPARATORS = frozenset({"=", "<>", "<", "<=", ">", ">="})
# How many operands each function takes.
_TESTS = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}
_FUNCTIONS = {*_TESTS, "size", "if_not_exists", "list_append"}
_VERBS: dict[str, Verb] = {"SET": "SET", "REMOVE": "REMOVE", "ADD": "ADD", "DELETE": "DELETE"}

T = TypeVar("T")


class Parser:
    """Reads one expression; afterwards `names` and `values` hold the placeholders that it uses.

    Args:
        kind: The request's parameter, for messages: "ConditionExpression", "UpdateExpression" ...
        text: The expression.
    """

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.names: set[str] = set()
        self.values: set[str] = set()
        self.paths: list[Path] = []
        if not text.strip():
            self._refuse("The expression can not be empty;")
        if len(text.encode()) > _LONGEST:
            self._refuse(f"Expression size has exceeded the maximum allowed size of {_LONGEST} bytes")
        self._tokens = self._split(text)
        self._at = 0
        self._groups: dict[int, int] = {}  # where a parenthesis opens: where it closes

    def condition(self) -> Tree:
        """The whole text as a condition."""
        return self._to_the_end(self._or)

    def projection(self) -> list[Path]:
        """The whole text as paths, separated by commas."""
        return self._to_the_end(lambda: self._listed(self._path))

    def update(self) -> list[Action]:
        """The whole text as an update; each of its four sections at most once."""
        sections: dict[Verb, list[Action]] = {}
        while self._token():
            verb = _VERBS.get(self._token().upper())
            if verb is None:
                self._syntax_error()
            self._at += 1
            if verb in sections:
                self._refuse(f'The "{verb}" section can only be used once in an update expression;')
            sections[verb] = self._listed(lambda verb=verb: self._action(verb))  # type: ignore[misc]
        return [action for actions in sections.values() for action in actions]

    # -- tokens --

    def _split(self, text: str) -> list[str]:
        tokens, at = [], 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            match = _TOKEN.match(text, at)
            if match is None:
                self._refuse(f'Syntax error; token: "{text[at]}", near: "{text[max(0, at - 8) : at + 8]}"')
            tokens.append(match.group())
            at = match.end()
        return [*tokens, ""]  # the empty token is the end

    def _token(self) -> str:
        return self._tokens[self._at]

    def _accept(self, *wanted: str) -> str:
        """The token, if it is one of those; keywords in any case."""
        token = self._token().upper()
        if token in wanted:
            self._at += 1
            return token
        return ""

    def _expect(self, wanted: str) -> None:
        if not self._accept(wanted):
            self._syntax_error()

    def _to_the_end(self, parse: Callable[[], T]) -> T:
        result = parse()
        if self._token():
            self._syntax_error()
        return result

    def _listed(self, parse: Callable[[], T]) -> list[T]:
        items = [parse()]
        while self._accept(","):
            items.append(parse())
        return items

    def _refuse(self, reason: str) -> NoReturn:
        raise RefusedError(f"Invalid {self.kind}: {reason}")

    def _syntax_error(self) -> NoReturn:
        near = " ".join(self._tokens[max(0, self._at - 1) : self._at + 2]).strip()
        self._refuse(f'Syntax error; token: "{self._token() or "<EOF>"}", near: "{near}"')

    # -- conditions --

    def _or(self) -> Tree:
        tree = self._and()
        while self._accept("OR"):
            tree = Or(tree, self._and())
        return tree

    def _and(self) -> Tree:
        tree = self._not()
        while self._accept("AND"):
            tree = And(tree, self._not())
        return tree

    def _not(self) -> Tree:
        if self._accept("NOT"):
            return Not(self._not())
        return self._group() if self._token() == "(" else self._test()

    def _group(self) -> Tree:
        start = self._at
        self._expect("(")
        tree = self._or()
        if self._groups.get(start + 1) == self._at - 1:
            self._refuse("The expression has redundant parentheses;")
        self._groups[start] = self._at
        self._expect(")")
        return tree

    def _test(self) -> Tree:
        if self._token() in _TESTS and self._tokens[self._at + 1] == "(":
            return self._function_test()
        subject = self._operand()
        if self._accept("BETWEEN"):
            low = self._operand()
            self._expect("AND")
            return Between(subject, low, self._operand())
        if self._accept("IN"):
            self._expect("(")
            options = self._listed(self._operand)
            self._expect(")")
            if len(options) >= _MOST_OPTIONS:
                self._refuse(f"Too many operands; operator: IN, number of operands: {len(options) + 1}")
            return In(subject, tuple(options))
        comparator = self._accept(*_COMPARATORS)
        if not comparator:
            if isinstance(subject, Size):
                self._refuse("The function is not allowed to be used this way in an expression; function: size")
            self._syntax_error()
        return Compare(comparator, subject, self._operand())

    def _function_test(self) -> Tree:
        function, operands = self._call()
        if self._token() in _COMPARATORS:
            self._refuse(f"The function is not allowed to be used this way in an expression; function: {function}")
        if function in ("attribute_exists", "attribute_not_exists") and not isinstance(operands[0], Path):
            self._refuse(f"Operator or function requires a document path; operator or function: {function}")
        if function == "attribute_type" and not isinstance(operands[1], Value):
            self._refuse("Operator or function requires a value; operator or function: attribute_type")
        return Test(function, operands)

    # -- operands --

    def _operand(self) -> Operand:
        """A path, a value or `size(...)`; also what `sum` is made of, where the kind allows the function."""
        token = self._token()
        if token.startswith(":"):
            self._at += 1
            self.values.add(token)
            return Value(token)
        if self._tokens[self._at + 1 : self._at + 2] != ["("]:
            return self._path()
        allowed = ("if_not_exists", "list_append") if self.kind == "UpdateExpression" else ("size",)
        if token not in _FUNCTIONS:
            self._refuse(f"Invalid function name; function: {token}")
        if token not in allowed:
            self._refuse(f"The function is not allowed in this kind of expression; function: {token}")
        function, operands = self._call()
        if function == "size":
            return Size(operands[0])
        if function == "list_append":
            return ListAppend(*operands)
        path, default = operands
        if not isinstance(path, Path):
            self._refuse("Operator or function requires a document path; operator or function: if_not_exists")
        return IfNotExists(path, default)

    def _call(self) -> tuple[str, tuple[Operand, ...]]:
        function = self._token()
        self._at += 1
        self._expect("(")
        operands = tuple(self._listed(self._operand))
        self._expect(")")
        if len(operands) != _TESTS.get(function, 1 if function == "size" else 2):
            self._refuse(
                "Incorrect number of operands for operator or function; operator or function: "
                f"{function}, number of operands: {len(operands)}"
            )
        return function, operands

    def _path(self) -> Path:
        steps: list[str | int] = [self._name()]
        while True:
            if self._accept("."):
                steps.append(self._name())
            elif self._accept("["):
                if not self._token().isdigit():
                    self._syntax_error()
                steps.append(int(self._token()))
                self._at += 1
                self._expect("]")
            else:
                path = Path(tuple(steps))
                self.paths.append(path)
                return path

    def _name(self) -> str:
        token = self._token()
        if not token or not _NAME(token) or token[0].isdigit():
            self._syntax_error()
        if token.startswith("#"):
            self.names.add(token)
        elif token.upper() in RESERVED:
            self._refuse(f"Attribute name is a reserved keyword; reserved keyword: {token}")
        self._at += 1
        return token

    # -- updates --

    def _action(self, verb: Verb) -> Action:
        path = self._path()
        if verb == "REMOVE":
            return Action(verb, path, None)
        if verb == "SET":
            self._expect("=")
            return Action(verb, path, self._sum())
        operand = self._operand()
        if not isinstance(operand, Value):
            self._syntax_error()
        return Action(verb, path, operand)

    def _sum(self) -> Operand:
        left = self._operand()
        operator = self._accept("+", "-")
        return Arithmetic(operator, left, self._operand()) if operator else left
