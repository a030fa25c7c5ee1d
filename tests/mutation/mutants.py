"""Small changes to production code, of the kinds that people make: which there are, and a sample of them."""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from operators import LeaveOutStatement, SwapName

_FROM_THE_LIBRARY = (
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "ZeroIterationForLoop",
)

_Span = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Mutant:
    module: str
    """Path of the file, relative to the project."""
    kind: str
    """Name of the operator."""
    occurrence: int
    """Which of the places in the file where the operator can be applied."""
    line: int

    def code(self, root: Path) -> str:
        """The whole file with the change."""
        mutated = mutate_code((root / self.module).read_text(), OPERATORS[self.kind], self.occurrence)
        assert mutated is not None, self
        return str(mutated)

    def diff(self, root: Path) -> str:
        before = (root / self.module).read_text().splitlines()
        after = self.code(root).splitlines()
        return "\n".join(list(difflib.unified_diff(before, after, lineterm="", n=0))[3:])

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.kind}"


OPERATORS: dict[str, Operator] = {
    **{name: get_operator(f"core/{name}")() for name in _FROM_THE_LIBRARY},
    "LeaveOutStatement": LeaveOutStatement(),
    "SwapName": SwapName(),
}


class _Ignored:
    """Places where a change changes nothing that runs, only a text, or only a tuned value: annotations, what is only
    seen by type checkers, whether a dataclass is frozen, how a field is shown, constants of a module, the values of an
    enumeration, the log, what an error says and which other one is shown behind it, what a debugger shows of an object,
    where tests may intervene, which of an exception's arguments is meant (there is one), that lists are of one length
    where they always are (`zip`), and whether TCP waits for more to send."""

    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)

    def __contains__(self, span: _Span) -> bool:
        (line, column), _ = span
        return any(start <= (line, column) < end for start, end in self._spans)

    @cached_property
    def _spans(self) -> list[_Span]:
        found: list[ast.AST] = []
        for node in ast.walk(self._tree):
            match node:
                case ast.AnnAssign(annotation=annotation):
                    found.append(annotation)
                case ast.arg(annotation=ast.expr() as annotation):
                    found.append(annotation)
                case ast.FunctionDef(name="__repr__"):
                    found.append(node)
                case ast.FunctionDef(returns=ast.expr() as returns):
                    found.append(returns)
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    found.append(node)
                case ast.ClassDef(bases=bases) if _names(bases) & {"Protocol", "Enum", "IntEnum", "StrEnum"}:
                    found += [each for each in node.body if "Protocol" in _names(bases) or isinstance(each, ast.Assign)]
                case ast.Call(func=ast.Name(id="field"), keywords=keywords):
                    found += [each.value for each in keywords if each.arg in ("repr", "init")]
                case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "dataclass")):
                    found.append(node)
                case ast.Call(func=ast.Attribute(value=ast.Name(id="_LOG" | "_log" | "log" | "logger" | "failpoints"))):
                    found.append(node)
                case ast.Call(
                    func=ast.Name(id="zip"), keywords=[ast.keyword(value=ast.Constant(value=True) as strict)]
                ):
                    found.append(strict)
                case ast.Call(func=ast.Name(id="hit")):
                    found.append(node)
                case ast.Subscript(value=ast.Attribute(attr="args")):
                    found.append(node.slice)
                case ast.Raise(exc=ast.Call(args=arguments)):
                    found += [each for one in arguments for each in ast.walk(one) if isinstance(each, ast.JoinedStr)]
                case ast.Assign(targets=[ast.Attribute(attr="__cause__")]):
                    found.append(node)
                case ast.Call(func=ast.Attribute(attr="setsockopt"), args=[_, ast.Attribute(attr="TCP_NODELAY"), _]):
                    found.append(node)
        found += [statement for statement in self._tree.body if isinstance(statement, ast.Assign | ast.AnnAssign)]
        return [_span(node) for node in found]


def _names(expressions: list[ast.expr]) -> set[str]:
    """All names in them: `Generic[T]` has two."""
    return {node.id for each in expressions for node in ast.walk(each) if isinstance(node, ast.Name)}


def _span(node: ast.AST) -> _Span:
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def mutants_of(root: Path, module: str) -> Iterator[Mutant]:
    """All mutants of a file, in order of kind and place."""
    source = (root / module).read_text()
    ignored = _Ignored(source)
    nodes = list(ast_nodes(get_ast(source)))
    for kind, operator in OPERATORS.items():
        occurrence = 0
        for node in nodes:
            # The library takes the mark in front of keyword-only parameters for a multiplication.
            multiplies = node.parent is None or node.parent.type != "parameters"
            for span in operator.mutation_positions(node):
                if span not in ignored and multiplies:
                    yield Mutant(module, kind, occurrence, span[0][0])
                occurrence += 1


def sample(root: Path, places: list[str], size: int, seed: int) -> list[Mutant]:
    """`size` different mutants of the files at `places`; the same for the same seed and tree.

    A file is drawn with a chance that grows with its length, then one of its mutants.
    """
    modules = sorted({path for place in places for path in _modules(root / place)})
    lengths = [len(path.read_bytes()) for path in modules]
    mutants = cache(lambda path: list(mutants_of(root, str(path.relative_to(root)))))
    can_be_run = cache(lambda mutant: _can_be_run(root, mutant))
    rng = random.Random(seed)
    drawn: dict[Mutant, None] = {}
    for _ in range(100 * size):
        (path,) = rng.choices(modules, lengths)
        if mutants(path) and can_be_run(mutant := rng.choice(mutants(path))):
            drawn[mutant] = None
        if len(drawn) == size:
            break
    return list(drawn)


def _can_be_run(root: Path, mutant: Mutant) -> bool:
    """Not every place takes every change: `if not x := y` is no Python, so it would say nothing that it is caught."""
    try:
        compile(mutant.code(root), mutant.module, "exec")
    except SyntaxError:
        return False
    return True


def _modules(place: Path) -> list[Path]:
    return [place] if place.is_file() else list(place.rglob("*.py"))
