"""What values of a class hold, as data that a checkpoint keeps beside them: a later version of the program can tell
whether they fit its classes without reading them.

How values of each class are taken apart is in `checkpoint.codec.records`; types of fields are shapes of
`checkpoint.codec.type_shapes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoint.codec.classes import types_of
from checkpoint.codec.errors import UnfitClass
from checkpoint.codec.form import Form
from checkpoint.codec.record_forms import RecordForm
from checkpoint.codec.records import PickledForm, form_named
from checkpoint.codec.type_shapes import ANY, TypeShape, fits, hints_of, shape_of_type, text


@dataclass(frozen=True)
class ClassShape:
    """What some values of one class hold: fields, or else members of an enum; neither if they are pickled."""

    name: str
    """`module:qualname`, see `checkpoint.codec.classes`."""
    fields: Mapping[str, TypeShape] | None = None
    """The types of the fields."""
    members: frozenset[str | int] = field(default_factory=frozenset)
    """The names of the members (of combined flags, joined by `|`), numbers of flags that have none."""

    def to_wire(self) -> list[Any]:
        fields = None if self.fields is None else dict(self.fields)
        return [self.name, fields, sorted(self.members, key=str)]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> ClassShape:
        """
        Raises:
            TypeError, ValueError: it is damaged.
        """
        name, fields, members = wire
        return cls(name, None if fields is None else dict(fields), frozenset(members))


def field_types(form: RecordForm) -> Mapping[str, TypeShape]:
    """The types of a class' fields; `any` of what has no annotation, or one that can't be resolved."""
    if form.shape is None:
        known = types_of(form.name)
        if known is None:
            hints = hints_of(form.cls)
            known = {name: shape_of_type(hints[name]) if name in hints else ANY for name in form.names}
        form.shape = known
    types: Mapping[str, TypeShape] = form.shape
    return types


def shape_of_content(name: str, content: Any) -> ClassShape:
    """The shape of one value that was taken apart into this. The types of its fields are known if the class is here and
    has these fields, perhaps among others that came later."""
    if type(content) is bytes:
        return ClassShape(name)
    if type(content) is not dict:
        return ClassShape(name, members=frozenset({content}))
    try:
        form = form_named(name)
    except UnfitClass:
        form = None
    if isinstance(form, RecordForm) and content.keys() <= set(form.names):
        types = field_types(form)
        return ClassShape(name, {field: types[field] for field in content})
    return ClassShape(name, dict.fromkeys(content, ANY))


def misfits(shape: ClassShape) -> list[str]:
    """In what such values don't fit the class of their name as it is here and now; nothing if they do."""
    try:
        form = form_named(shape.name)
        if shape.fields is not None and isinstance(form, RecordForm):
            return list(_misfits_of_fields(form, shape.fields))
        if shape.fields is not None:
            form.make({}, None)
        elif not shape.members and not isinstance(form, PickledForm):
            form.make(b"", None)
    except UnfitClass as error:
        return [str(error)]
    return [problem for member in sorted(shape.members, key=str) if (problem := _misfit_of_member(form, member))]


def _misfits_of_fields(form: RecordForm, fields: Mapping[str, TypeShape]) -> Iterator[str]:
    now = field_types(form)
    for name, old in fields.items():
        if name not in now:
            yield f"its field {name!r} was written and is no field now"
        elif not fits(old, now[name]):
            yield f"its field {name!r} was {text(old)} and is {text(now[name])} now"
    for name in form.names:
        if name not in fields and form.needs(name):
            yield f"its field {name!r} was not written and has no default"


def _misfit_of_member(form: Form, member: str | int) -> str | None:
    try:
        form.make(member, None)
    except UnfitClass as error:
        return str(error)
    return None
