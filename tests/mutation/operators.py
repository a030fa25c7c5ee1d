"""Mutations that cosmic-ray doesn't have: a statement that is left out, and a name in place of its opposite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import parso
from cosmic_ray.operators.operator import Example, Operator
from parso.python.tree import ExprStmt, Name

Position = tuple[tuple[int, int], tuple[int, int]]

_OPPOSITES = {
    "all": "any",
    "any": "all",
    "max": "min",
    "min": "max",
    "append": "remove",
    "appendleft": "append",
    "popleft": "pop",
    "union": "intersection",
    "start": "stop",
    "first": "last",
    "bisect_left": "bisect_right",
    "bisect_right": "bisect_left",
}


class LeaveOutStatement(Operator):
    """A forgotten call or a forgotten reset: an attribute that isn't set, a call whose result nobody wants."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if self._may_go(node):
            yield (node.start_pos, node.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        return parso.parse(node.get_first_leaf().prefix + "pass")

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("self.x = 0", "pass"), Example("f(1)", "pass"))

    @staticmethod
    def _may_go(node: Any) -> bool:
        if node.parent is None or node.parent.type != "simple_stmt":
            return False
        if isinstance(node, ExprStmt):  # without a local name, which the next line would miss at once
            target = node.children[0]
            return target.type in ("power", "atom_expr") and node.children[1].type != "annassign"
        return bool(node.type in ("power", "atom_expr") and node.children[-1].type == "trailer")


class SwapName(Operator):
    """`all` for `any`, `max` for `min`, and others that are easily taken for each other."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if not isinstance(node, Name) or node.parent.type == "funcdef":
            return  # a method with another name is missed at once
        if node.value in _OPPOSITES and node.get_next_leaf().value == "(":
            yield (node.start_pos, node.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        return Name(_OPPOSITES[node.value], node.start_pos, node.prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("all(x)", "any(x)"), Example("max(x)", "min(x)"))
