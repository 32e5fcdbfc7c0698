"""The mutants of a module: small wrong versions of its source, each of which a test should notice.

A mutant replaces one stretch of bytes: a comparison by its neighbour or its opposite, a number by one more or less,
`and` by `or`, a condition by its negation, a returned value by another, a statement by `pass`, the first two arguments
by each other, an entry of a table by its neighbour or by nothing. What no test should pin down is left alone:
docstrings, prose, annotations (but for the bounds that `Meta(...)` states in them), decorators, imports, the texts of
errors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

COMPARED: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
COMPUTED: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "+"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
}
RENAMED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
ARGUMENTS_KEPT: Final = {"isinstance", "issubclass", "getattr", "setattr", "hasattr", "TypeVar", "cast", *RENAMED}
"""Calls whose first two arguments are not swapped: the result would be no program, or the same one."""
WORD: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*")
"""A string that is a name of something; other strings are prose."""
LEFT_OUT: Final = "nothing"


@dataclass(frozen=True)
class Mutant:
    """One wrong version: bytes `begin` to `end` of the file are replaced by `text`."""

    path: str
    line: int
    function: str
    was: str
    becomes: str
    begin: int
    end: int
    text: str

    def applied_to(self, source: bytes) -> bytes:
        """The whole file as this mutant has it."""
        return source[: self.begin] + self.text.encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """All mutants of a file that can be parsed, by their place in it."""
    tree = ast.parse(source)
    found = {(m.begin, m.end, m.text): m for m in _Finder(path, source).mutants_in(tree)}
    return [found[key] for key in sorted(found) if _is_a_program(found[key].applied_to(source))]


def _is_a_program(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class _Finder:
    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.line_starts = [0]
        for line in source.splitlines(keepends=True):
            self.line_starts.append(self.line_starts[-1] + len(line))

    def mutants_in(self, tree: ast.Module) -> Iterator[Mutant]:
        yield from self._body(tree.body, "")

    # ── statements ────────────────────────────────────────────────────────────────────────────────────────────────

    def _body(self, body: list[ast.stmt], function: str) -> Iterator[Mutant]:
        for statement in body:
            yield from self._statement(statement, function)

    def _statement(self, node: ast.stmt, function: str) -> Iterator[Mutant]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if not any("overload" in ast.unparse(mark) for mark in node.decorator_list):
                    yield from self._function(node, function)
            case ast.ClassDef():
                if not any(ast.unparse(parent).startswith("Protocol") for parent in node.bases):
                    yield from self._body(node.body, f"{function}.{node.name}".lstrip("."))
            case ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Pass() | ast.Assert():
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Raise() | ast.Break() | ast.Continue() | ast.Delete():
                yield self._replaced(node, "pass", function)
            case ast.Return():
                yield from self._returned(node, function)
            case ast.Expr():
                if not isinstance(node.value, ast.Constant):
                    if not isinstance(node.value, (ast.Yield, ast.YieldFrom)):
                        yield self._replaced(node, "pass", function)
                    yield from self._expression(node.value, function)
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                yield from self._assigned(node, function)
            case _:
                yield from self._compound(node, function)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, function: str) -> Iterator[Mutant]:
        name = f"{function}.{node.name}".lstrip(".")
        self.result = ast.unparse(node.returns) if node.returns else ""
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.annotation is not None:
                yield from self._annotation(argument.annotation, name)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                yield from self._expression(default, name)
        result, bound = self.result, self._bound_twice(node)
        for statement in node.body:
            self.result, self.bound_twice = result, bound
            yield from self._statement(statement, name)

    @staticmethod
    def _bound_twice(node: ast.AST) -> set[str]:
        """Names bound more than once: without one of these assignments the function still runs."""
        stored = [name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]
        return {name for name in stored if stored.count(name) > 1}

    def _assigned(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, function: str) -> Iterator[Mutant]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if names & {"__all__", "__slots__"}:
            return
        if isinstance(node, ast.AnnAssign):
            yield from self._annotation(node.annotation, function)
        inside = bool(function) and not function.rpartition(".")[2][:1].isupper()
        if isinstance(node, ast.AugAssign):
            yield self._replaced(node, "pass", function)
            yield from self._operator(node.target, node.op, node.value, function, sign="=")
        elif inside and node.value is not None and (not names or names <= self.bound_twice):
            yield self._replaced(node, "pass", function)
        for target in targets:
            if not isinstance(target, ast.Name):
                yield from self._expression(target, function)
        if node.value is not None:
            if not inside and isinstance(node.value, ast.Tuple | ast.List):
                yield from self._entries(node.value, node.value.elts, function)
                yield from self._neighbours(node.value.elts, function)
            yield from self._expression(node.value, function)

    def _compound(self, node: ast.stmt, function: str) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(node):
            if name in ("test", "subject", "iter", "value") and isinstance(value, ast.expr):
                if name == "test":
                    yield from self._negated(value, function)
                yield from self._expression(value, function)
            elif name in ("body", "orelse", "finalbody"):
                yield from self._body(value, function)
            elif name == "items":
                for item in value:
                    yield from self._expression(item.context_expr, function)
            elif name in ("handlers", "cases"):
                for part in value:
                    if isinstance(part, ast.match_case) and part.guard is not None:
                        yield from self._negated(part.guard, function)
                        yield from self._expression(part.guard, function)
                    yield from self._body(part.body, function)

    def _returned(self, node: ast.Return, function: str) -> Iterator[Mutant]:
        value = node.value
        if value is None:
            yield self._replaced(node, "pass", function)
            return
        if not isinstance(value, ast.Constant):
            text = self._text(value)
            other = {"bool": f"not ({text})", "int": f"({text}) + 1", "str": '""'}.get(self.result, "None")
            yield self._replaced(value, other, function)
        yield from self._expression(value, function)

    # ── expressions ───────────────────────────────────────────────────────────────────────────────────────────────

    def _annotation(self, node: ast.expr, function: str) -> Iterator[Mutant]:
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                yield from self._expression(part, function)

    def _expression(self, node: ast.AST, function: str) -> Iterator[Mutant]:
        match node:
            case ast.JoinedStr():
                return  # prose, and Python 3.11 does not say where its parts stand
            case ast.Constant():
                yield from self._constant(node, function)
            case ast.Compare():
                for left, op, right in zip((node.left, *node.comparators), node.ops, node.comparators, strict=False):
                    sign, others = COMPARED[type(op)]
                    for other in others:
                        yield from self._between(left, right, sign, other, function)
                    if isinstance(right, ast.Tuple) and isinstance(op, (ast.In, ast.NotIn)):
                        yield from self._entries(right, right.elts, function)
            case ast.BoolOp():
                sign, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in pairwise(node.values):
                    yield from self._between(left, right, sign, other, function)
            case ast.BinOp():
                yield from self._operator(node.left, node.op, node.right, function)
            case ast.UnaryOp(op=ast.Not()):
                yield self._replaced(node, f"bool({self._text(node.operand)})", function)
            case ast.IfExp():
                yield from self._negated(node.test, function)
            case ast.comprehension():
                for test in node.ifs:
                    yield from self._negated(test, function)
            case ast.Set():
                yield from self._entries(node, node.elts, function)
            case ast.Dict():
                yield from self._entries(node, node.values, function, node.keys)
                yield from self._neighbours(node.values, function)
            case ast.Call():
                yield from self._call(node, function)
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Name)):
                yield from self._expression(child, function)

    def _constant(self, node: ast.Constant, function: str) -> Iterator[Mutant]:
        value = node.value
        if isinstance(value, bool):
            yield self._replaced(node, str(not value), function)
        elif isinstance(value, int | float):
            yield self._replaced(node, repr(value + 1), function)
            yield self._replaced(node, f"({value - 1!r})", function)
        elif isinstance(value, str) and WORD.fullmatch(value):
            yield self._replaced(node, repr(value + "x"), function)

    def _call(self, node: ast.Call, function: str) -> Iterator[Mutant]:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in RENAMED:
            yield self._replaced(node.func, RENAMED[name], function)
        if name in ARGUMENTS_KEPT or len(node.args) < 2:
            return
        yield from self._swapped(node.args[0], node.args[1], function)

    def _negated(self, test: ast.expr, function: str) -> Iterator[Mutant]:
        if not isinstance(test, ast.Compare | ast.Constant) and not (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            yield self._replaced(test, f"not ({self._text(test)})", function)

    def _operator(
        self, left: ast.expr, op: ast.operator, right: ast.expr, function: str, sign: str = ""
    ) -> Iterator[Mutant]:
        if type(op) in COMPUTED:
            was, other = COMPUTED[type(op)]
            yield from self._between(left, right, was + sign, other + sign, function)

    def _between(self, left: ast.expr, right: ast.expr, was: str, other: str, function: str) -> Iterator[Mutant]:
        """The operator that stands between two operands, replaced."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self.source[begin:end].decode()
        sign = r"\s+".join(map(re.escape, was.split()))
        spots = list(re.finditer(rf"\b{sign}\b" if was[0].isalpha() else sign, gap))
        if len(spots) == 1 and "#" not in gap:
            place = begin + len(gap[: spots[0].start()].encode())
            shown = f"{self._text(left)} {{}} {self._text(right)}"
            yield Mutant(
                self.path,
                self._line(place),
                function,
                _flat(shown.replace("{}", was, 1)),
                _flat(shown.replace("{}", other, 1)),
                place,
                place + len(spots[0][0].encode()),
                other,
            )

    def _entries(
        self, node: ast.expr, values: list[ast.expr], function: str, keys: list[ast.expr | None] | None = None
    ) -> Iterator[Mutant]:
        """A display without one of its entries."""
        firsts = values if keys is None else [key or value for key, value in zip(keys, values, strict=True)]
        begins = [self._span(first)[0] for first in firsts] + [self._span(node)[1] - 1]
        for (begin, end), value in zip(pairwise(begins), values, strict=True):
            was = _flat(self.source[begin : self._span(value)[1]].decode())
            yield Mutant(self.path, self._line(begin), function, was, LEFT_OUT, begin, end, "")

    def _neighbours(self, values: list[ast.expr], function: str) -> Iterator[Mutant]:
        for one, other in pairwise(values):
            yield from self._swapped(one, other, function)

    def _swapped(self, one: ast.expr, other: ast.expr, function: str) -> Iterator[Mutant]:
        starred = isinstance(one, ast.Starred) or isinstance(other, ast.Starred)
        if starred or ast.dump(one) == ast.dump(other):
            return
        begin, end = self._span(one)[0], self._span(other)[1]
        between = self.source[self._span(one)[1] : self._span(other)[0]].decode()
        text = self._text(other) + between + self._text(one)
        was = _flat(self.source[begin:end].decode())
        yield Mutant(self.path, self._line(begin), function, was, _flat(text), begin, end, text)

    # ── places ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _replaced(self, node: ast.AST, text: str, function: str) -> Mutant:
        begin, end = self._span(node)
        return Mutant(self.path, self._line(begin), function, _flat(self._text(node)), _flat(text), begin, end, text)

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self.source[begin:end].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        """Offsets in bytes, which is what ast counts columns in."""
        assert isinstance(node, ast.stmt | ast.expr)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.line_starts[node.lineno - 1] + node.col_offset,
            self.line_starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _line(self, offset: int) -> int:
        return self.source.count(b"\n", 0, offset) + 1


def _flat(text: str) -> str:
    """On one line, for a report."""
    return re.sub(r"\s+", " ", text)
