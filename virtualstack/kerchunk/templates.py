"""Templates and generators of kerchunk references: the part of Jinja that they need, without running code."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from virtualstack.errors import MalformedFileError

_EXPRESSION = re.compile(r"\{\{(.*?)\}\}")
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MAX_DEPTH, _MAX_EXPRESSION_CHARACTERS, _MAX_TEXT_CHARACTERS = 8, 256, 1 << 14
_MAX_DIMENSIONS, _USUAL_DIMENSIONS = 32, 4
_MAX_NUMBER = 2.0**62
_MAX_EXPRESSIONS = 256  # expressions for one text, since templates may use templates
_AGAIN = "Write the references without templates and generators: fsspec expands them with simple_templates=False"
_MAX_COLUMN_CHARACTERS = 1 << 30  # maximum characters that one generator may make of one text

type Value = int | str | np.ndarray[Any, Any] | pa.Array


def render(text: str, templates: Mapping[str, str], /, *, where: str) -> str:
    """Return a text with its templates replaced.

    >>> render("{{u}}/a.nc", {"u": "s3://bucket"}, where="refs.json")
    's3://bucket/a.nc'
    >>> render("{{f(c='x')}}.nc", {"f": "{{c}}_{{c}}"}, where="refs.json")
    'x_x.nc'
    """
    rendered = _render(text, {}, templates, where, 0, iter(range(_MAX_EXPRESSIONS)))
    return rendered if isinstance(rendered, str) else str(rendered)


def generate(
    generators: object, templates: Mapping[str, str], /, *, where: str, max_references: int = 1 << 22
) -> dict[str, list[Any]]:
    """Expand the ``gen`` section into references by key; each generator is evaluated as arrays."""
    references: dict[str, list[Any]] = {}
    if not isinstance(generators, list):
        raise MalformedFileError(f"'{where}' has 'gen' {repr(generators)[:200]}; expected a list. {_AGAIN}")
    for generator in generators:
        if not isinstance(generator, Mapping) or not all(isinstance(generator.get(x), str) for x in ("key", "url")):
            raise MalformedFileError(
                f"'{where}' has the generator {repr(generator)[:200]}; expected an object with the texts 'key' and "
                f"'url'. {_AGAIN}"
            )
        values = _dimensions(generator.get("dimensions"), where)
        n = math.prod(len(value) for value in values.values())
        most = max([n, *map(len, values.values())]) * max(1, len(values) // _USUAL_DIMENSIONS)
        if most > max_references - len(references):
            raise MalformedFileError(
                f"'{where}' has generators of more than {max_references} references, which is the most that is read. "
                "Write the references as parquet"
            )
        index = np.indices([len(value) for value in values.values()]).reshape(len(values), n)
        names = {name: _take(value, row) for (name, value), row in zip(values.items(), index, strict=True)}
        columns = [_column(generator[part], names, templates, where, n) for part in ("key", "url")]
        if ("offset" in generator) != ("length" in generator):
            raise MalformedFileError(
                f"'{where}' has a generator with only one of 'offset' and 'length'; expected both or none. {_AGAIN}"
            )
        if "offset" in generator:
            columns += [_whole_numbers(generator[part], names, templates, where, n) for part in ("offset", "length")]
        keys, *rest = (column.to_pylist() for column in columns)
        references.update(zip(keys, map(list, zip(*rest, strict=True)), strict=True))
    return references


def _dimensions(dimensions: object, where: str) -> dict[str, Any]:
    if not isinstance(dimensions, Mapping):
        raise MalformedFileError(
            f"'{where}' has a generator with the dimensions {repr(dimensions)[:200]}; expected an object. {_AGAIN}"
        )
    if len(dimensions) > _MAX_DIMENSIONS:
        raise MalformedFileError(
            f"'{where}' has a generator of {len(dimensions)} dimensions; at most {_MAX_DIMENSIONS} are read. {_AGAIN}"
        )
    values: dict[str, Any] = {}
    for name, value in dimensions.items():
        if not isinstance(value, list | Mapping):
            raise _bad_dimension(name, value, where)
        try:
            values[name] = (
                pa.array(value)
                if isinstance(value, list)
                else range(int(value.get("start", 0)), int(value["stop"]), int(value.get("step", 1)))
            )
            len(values[name])
        except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise _bad_dimension(name, value, where) from error
    return values


def _bad_dimension(name: object, value: object, where: str) -> MalformedFileError:
    return MalformedFileError(
        f"'{where}' has the dimension '{name}': {repr(value)[:200]}. It must be a list, or an object "
        f"with stop, start and step. {_AGAIN}"
    )


def _take(values: Any, index: np.ndarray[Any, Any]) -> Value:
    if isinstance(values, range):
        return index * values.step + values.start
    if pa.types.is_integer(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False))[index]
    return values.take(pa.array(index))


def _column(text: str, names: Mapping[str, Value], templates: Mapping[str, str], where: str, n: int) -> pa.Array:
    rendered = _render(text, names, templates, where, 0, iter(range(_MAX_EXPRESSIONS)))
    if isinstance(rendered, str) and n * len(rendered) > _MAX_COLUMN_CHARACTERS:
        raise _too_much(where)
    return pa.array([rendered] * n, pa.string()) if isinstance(rendered, str) else _strings(rendered)


def _whole_numbers(
    text: object, names: Mapping[str, Value], templates: Mapping[str, str], where: str, n: int
) -> pa.Array:
    try:
        return pc.cast(_column(str(text), names, templates, where, n), pa.int64())
    except pa.ArrowInvalid as error:
        raise MalformedFileError(
            f"'{where}' has the generator expression {text!r}, whose values are not all whole numbers. {_AGAIN}"
        ) from error


def _strings(value: Value) -> pa.Array:
    return pc.cast(pa.array(value), pa.string())


def _too_much(where: str) -> MalformedFileError:
    return MalformedFileError(
        f"'{where}' has a generator of more than {_MAX_COLUMN_CHARACTERS} characters, which is the most that is "
        "read. Write the references as parquet"
    )


def _render(
    text: str, names: Mapping[str, Value], templates: Mapping[str, str], where: str, depth: int, budget: Iterator[int]
) -> Any:
    """Return a string, or an Arrow array of strings if a name has an array as its value."""
    if depth > _MAX_DEPTH or len(text) > _MAX_TEXT_CHARACTERS:
        raise MalformedFileError(
            f"'{where}' has templates that are nested more than {_MAX_DEPTH} deep, or texts of more than "
            f"{_MAX_TEXT_CHARACTERS} characters. {_AGAIN}"
        )
    if "{%" in text:
        raise MalformedFileError(
            f"'{where}' has the template {text[:80]!r}; statements ('{{%') are not supported. {_AGAIN}"
        )
    parts: list[Any] = []
    for i, part in enumerate(_EXPRESSION.split(text)):
        parts.append(part if i % 2 == 0 else _evaluate(part, names, templates, where, depth, budget))
    if all(isinstance(part, (str, int)) for part in parts):
        joined = "".join(map(str, parts))
        if len(joined) > _MAX_TEXT_CHARACTERS:
            raise MalformedFileError(
                f"'{where}' has templates whose texts have more than {_MAX_TEXT_CHARACTERS} characters. {_AGAIN}"
            )
        return joined
    columns = [str(part) if isinstance(part, (str, int)) else _strings(part) for part in parts]
    n = max(len(column) for column in columns if not isinstance(column, str))
    lengths = (n * len(x) if isinstance(x, str) else pc.sum(pc.binary_length(x)).as_py() or 0 for x in columns)
    if sum(lengths) > _MAX_COLUMN_CHARACTERS:
        raise _too_much(where)
    return pc.binary_join_element_wise(*columns, "")


def _evaluate(
    text: str, names: Mapping[str, Value], templates: Mapping[str, str], where: str, depth: int, budget: Iterator[int]
) -> Value:
    def value(node: ast.AST) -> Value:
        match node:
            case ast.Constant(value=int() | str() as constant):
                return constant
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.Name(id=name) if name in templates:
                rendered: Value = _render(templates[name], names, templates, where, depth + 1, budget)
                return rendered
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                operands = value(left), value(right)
                if all(isinstance(x, (int, np.ndarray)) for x in operands):
                    about = _OPERATORS[type(op)](*(np.asarray(x, np.float64) for x in operands))
                    if np.abs(about).max(initial=0) > _MAX_NUMBER:
                        raise OverflowError("a number is beyond 2^62")  # integers of numpy would wrap around
                    result: Value = _OPERATORS[type(op)](*operands)
                    return result
            case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords) if name in templates:
                arguments = {str(x.arg): value(x.value) for x in keywords}
                called: Value = _render(templates[name], {**names, **arguments}, templates, where, depth + 1, budget)
                return called
        raise SyntaxError("it has an unknown name, or is not whole-number arithmetic")

    try:
        if len(text) > _MAX_EXPRESSION_CHARACTERS:
            raise SyntaxError(f"it has more than {_MAX_EXPRESSION_CHARACTERS} characters")
        if next(budget, None) is None:
            raise SyntaxError(f"one text has more than {_MAX_EXPRESSIONS} expressions")
        with np.errstate(all="raise"):
            return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError) as error:
        if isinstance(error, MalformedFileError):
            raise
        raise MalformedFileError(
            f"'{where}' has the template expression {text[:80]!r}: {error}. Expressions may have names, whole-number "
            f"arithmetic, and templates with arguments. {_AGAIN}"
        ) from error
