"""Recognise an object that is like one of an earlier file, so that it need not be parsed again.

The files of a product have the same objects at the same paths: blocks of equal bytes but for addresses, checksums,
times and a few values. A template knows these places. It is learnt from two objects at a path that were parsed, and
is used only after a proof: the parsers get the same bytes with other addresses and with random bytes in these places,
and must find what the template finds. A template requires all other bytes to be equal, and verifies all checksums.
"""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numcodecs.jenkins import jenkins_lookup3

from virtualstack.formats.hdf5.objects import DatasetHeader, FileObject, Likeness, read_whole
from virtualstack.formats.hdf5.structures.layout_message import ContiguousLayout
from virtualstack.formats.hdf5.structures.object_header import first_block_size
from virtualstack.formats.hdf5.structures.requests import Blocks, Parse, Span, StructureError, Widths
from virtualstack.formats.hdf5.structures.superblock import Superblock

_MAX_BYTES = 1 << 15  # of the blocks of an object
_MAX_TRIES, _MAX_SHAPES, _MAX_PATHS = 8, 4, 4096
_WIDTHS = Widths(8, 8)
_END = 1 << 60  # of the file of a proof
_N_PROOFS = 4
_UNKNOWN = -1


class Sample(NamedTuple):
    """An object that was parsed: its address, and the blocks that the parsers have read, in their order."""

    address: int
    blocks: dict[int, bytes]

    def recorded[T](self, parser: Parse[T]) -> Parse[T]:
        """Run a parser, and keep what it reads."""
        try:
            requests = next(parser)
            while True:
                try:
                    answers = yield requests
                except StructureError as error:
                    requests = parser.throw(error)
                else:
                    self._keep(requests, answers)
                    requests = parser.send(answers)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _keep(self, requests: Sequence[Span | Blocks], answers: Sequence[Any]) -> None:
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(request, Span):
                self.blocks[request.address] = answer
            else:
                self.blocks.update(zip(request.addresses.tolist(), map(np.ndarray.tobytes, answer), strict=True))


class _Parsed(NamedTuple):
    """An object with its blocks, the block at its address first and without the bytes behind it."""

    places: tuple[int, ...]
    blocks: tuple[bytes, ...]
    node: FileObject


class _Field(NamedTuple):
    """Bytes of a block that differ from object to object.

    Parameters
    ----------
    kind
        ``"pointer"`` to the block ``number``, ``"output"`` ``number``, a ``"checksum"``, or ``"free"``, which is not
        used. Checksum 0 is of the bytes before it, and checksum 1 is of the whole block with zeros in its place.
    """

    at: int
    size: int
    kind: str
    number: int = 0

    @property
    def code(self) -> str:
        return {8: "Q", 4: "I"}[self.size] if self.kind in ("pointer", "checksum") else f"{self.size}s"


class _Block(NamedTuple):
    """What a block has: constant bytes, and fields between them."""

    size: int
    fields: tuple[_Field, ...]
    form: struct.Struct
    constants: tuple[bytes, ...]


type _Output = tuple[str, Any]
"""A value of an object: ("links", number), ("attributes", number) or ("layout", name)."""

_LAYOUT_VALUES = "address", "size", "single_size", "data"


class Template(NamedTuple):
    """What the objects at a path have in common; the places are those of blocks that have not moved yet."""

    node: FileObject
    blocks: tuple[_Block, ...]
    places: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]
    outputs: tuple[_Output, ...]
    rules: tuple[object, ...]
    likeness: Likeness

    def read(self, address: int, superblock: Superblock, /) -> Parse[FileObject | None]:
        """Return the object at an address; ``None`` if the parsers must read it."""
        places = list(self.places)
        if places[0] not in (_UNKNOWN, address) or _rules(superblock) != self.rules:
            return None
        places[0] = address
        values: list[Any] = [_UNKNOWN] * len(self.outputs)
        for level in self.levels:
            try:
                bodies = yield [Span(places[number], self.blocks[number].size) for number in level]
            except StructureError:
                return None
            for number, body in zip(level, bodies, strict=True):
                if not _matches(self.blocks[number], body, places, values):
                    return None
        spans = sorted(zip(places, [block.size for block in self.blocks], strict=True))
        if any(following < place + size for (place, size), (following, _) in pairwise(spans)):
            return None
        return self._made(values, superblock.end)

    def _made(self, values: Sequence[bytes], end: int) -> FileObject | None:
        """Return the object with these values; ``None`` if an address is not within the file."""
        node = self.node
        layout: dict[str, Any] = {}
        links, attributes = list(node.links), list(node.known_attributes)
        for (part, key), raw in zip(self.outputs, values, strict=True):
            if part == "attributes":
                attributes[key] = replace(attributes[key], data=raw)
            elif key == "data":
                layout[key] = raw
            elif (number := int.from_bytes(raw, "little")) > end:
                return None
            elif part == "links":
                links[key] = links[key]._replace(address=number)
            else:
                layout[key] = number
        header = node.header
        if isinstance(header, DatasetHeader):
            if layout:
                header = header._replace(layout=header.layout._replace(**layout))
            found = header.layout
            if (
                isinstance(found, ContiguousLayout)
                and found.address is not None
                and found.address + (found.size or end) > end
            ):
                return None
        return FileObject(
            kind=node.kind, links=links, header=header, attributes=tuple(attributes), likeness=self.likeness
        )


def _matches(block: _Block, body: bytes, places: list[int], values: list[Any]) -> bool:
    """Compare a block with its template; add the addresses and values that it has."""
    found = block.form.unpack(body)
    if found[::2] != block.constants:
        return False
    for (at, _, kind, number), value in zip(block.fields, found[1::2], strict=True):
        if kind == "free":
            continue
        if kind == "checksum":
            if value != _checksum(body, at, number):
                return False
            continue
        known = places if kind == "pointer" else values
        if known[number] == _UNKNOWN:
            known[number] = value
        elif known[number] != value:
            return False
    return True


def _checksum(body: bytes, at: int, is_whole: int) -> int:
    """Compute a checksum as the parsers do: of the bytes before it, or of a whole block."""
    found: int = jenkins_lookup3(body[:at] + bytes(4) + body[at + 4 :] if is_whole else body[:at], 0)
    return found


class Templates:
    """The templates that this process has learnt, by the path of an object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all templates."""
        self._shapes: dict[bytes, dict[tuple[object, ...], _Shape]] = {}

    def find(self, path: bytes, /) -> list[Template]:
        """Return the templates of a path."""
        shapes = self._shapes.get(path, {})
        return [shape.template for shape in shapes.values() if shape.template is not None]

    def learn(self, path: bytes, sample: Sample, node: FileObject, superblock: Superblock, /) -> None:
        """Learn from an object that was parsed, because no template was like it."""
        if superblock.widths != _WIDTHS or isinstance(node.attributes, StructureError):
            return
        if sum(map(len, sample.blocks.values())) > _MAX_BYTES:
            return
        head = sample.blocks.pop(sample.address)
        blocks = {sample.address: head[: first_block_size(head)], **sample.blocks}
        parsed = _Parsed(tuple(blocks), tuple(blocks.values()), replace(node, chunks=None))
        with self._lock:
            if len(self._shapes) >= _MAX_PATHS:
                self.clear()
            shapes = self._shapes.get(path, {})
            size = _rules(superblock), *map(len, parsed.blocks)
            if size not in shapes:  # other threads may iterate over the old ones
                shapes = {**(shapes if len(shapes) < _MAX_SHAPES else {}), size: _Shape()}
                self._shapes[path] = shapes
            shapes[size].learn(parsed, superblock)


TEMPLATES = Templates()


def _rules(superblock: Superblock) -> tuple[object, ...]:
    """Return what parsers know of a file but where its parts are."""
    return superblock.widths, superblock.group_leaf_k, superblock.group_internal_k, superblock.chunk_k


class _Shape:
    """Objects at a path whose blocks have the same sizes."""

    def __init__(self) -> None:
        self.template: Template | None = None
        self._samples: list[_Parsed] = []
        self._n_tries = 0

    def learn(self, parsed: _Parsed, superblock: Superblock) -> None:
        """Make a template of the samples; each may show further places that differ."""
        if self._n_tries >= _MAX_TRIES:
            return
        self._samples = [*self._samples, parsed]
        if len(self._samples) > 1:
            self._n_tries += 1
            made = _derived(self._samples, _rules(superblock))
            if made is None or not _is_proved(made, parsed, superblock):
                self._samples = [parsed]
            else:
                self.template = made


def _derived(samples: Sequence[_Parsed], rules: tuple[object, ...]) -> Template | None:
    """Find the places in which samples differ; ``None`` if they are not objects of one product."""
    first = samples[-1]
    differing: dict[_Output, None] = {}
    for sample in samples:
        found = _differences(first.node, sample.node)
        if found is None:
            return None
        differing |= dict.fromkeys(found)
    names = tuple(differing)
    outputs = {name: [_stored(_value(sample.node, name)) for sample in samples] for name in names}
    moving = {
        number: [sample.places[number].to_bytes(8, "little") for sample in samples]
        for number in range(len(first.blocks))
        if len({sample.places[number] for sample in samples}) > 1
    }
    blocks = []
    for number in range(len(first.blocks)):
        bodies = [sample.blocks[number] for sample in samples]
        fields: list[_Field] = []
        for n, name in enumerate(names):
            fields += _found("output", n, outputs[name], bodies, fields)
        for n, places in moving.items():
            fields += _found("pointer", n, places, bodies, fields)
        fields += _rest(bodies, fields)
        fields.sort()
        if any(following.at < field.at + field.size for field, following in pairwise(fields)):
            return None
        blocks.append(_block(bodies[-1], fields))
    has_value = {field.number for block in blocks for field in block.fields if field.kind == "output"}
    levels = _levels(blocks, moving.keys())
    if levels is None or len(has_value) < len(names):
        return None
    addresses = tuple(_UNKNOWN if n in moving else place for n, place in enumerate(first.places))
    attributes = [
        number
        for number, attribute in enumerate(first.node.known_attributes)
        if attribute.datatype.kind in ("vlen", "reference") or ("attributes", number) in names
    ]
    return Template(first.node, tuple(blocks), addresses, levels, names, rules, Likeness(tuple(attributes)))


def _stored(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.to_bytes(8, "little")


def _value(node: FileObject, output: _Output) -> Any:
    part, key = output
    if part == "layout":
        return getattr(node.header.layout, key)  # type: ignore[union-attr]
    return node.links[key].address if part == "links" else node.known_attributes[key].data


def _differences(a: FileObject, b: FileObject) -> list[_Output] | None:
    """Return the values in which two objects differ; ``None`` if they differ in something else."""
    found: list[_Output] = []
    if a.kind != b.kind or len(a.links) != len(b.links) or len(a.known_attributes) != len(b.known_attributes):
        return None
    for n, (link, other) in enumerate(zip(a.links, b.links, strict=True)):
        if link != other:
            if link._replace(address=other.address) != other:
                return None
            found.append(("links", n))
    for n, (one, another) in enumerate(zip(a.known_attributes, b.known_attributes, strict=True)):
        if one is not another:
            is_like = (one.name, one.datatype, one.shape, len(one.data), one.fault) == (
                another.name,
                another.datatype,
                another.shape,
                len(another.data),
                another.fault,
            )
            if not is_like:
                return None
            if one.data != another.data:
                found.append(("attributes", n))
    if a.header == b.header:
        return found
    if not isinstance(a.header, DatasetHeader) or not isinstance(b.header, DatasetHeader):
        return None
    x, y = a.header.layout, b.header.layout
    if type(x) is not type(y):
        return None
    differing = {key: getattr(y, key) for key in _LAYOUT_VALUES if getattr(x, key, None) != getattr(y, key, None)}
    has_types = all(type(value) is type(getattr(x, key)) for key, value in differing.items())
    if not has_types or a.header._replace(layout=x._replace(**differing)) != b.header:
        return None
    return found + [("layout", key) for key in differing]


def _found(
    kind: str, number: int, values: Sequence[bytes], bodies: Sequence[bytes], taken: Sequence[_Field]
) -> Iterator[_Field]:
    """Yield the places where each sample has its value."""
    size, at = len(values[-1]), -1
    while size and (at := bodies[-1].find(values[-1], at + 1)) >= 0:
        if all(body[at : at + size] == value for body, value in zip(bodies, values, strict=True)) and not any(
            at < field.at + field.size and field.at < at + size for field in taken
        ):
            yield _Field(at, size, kind, number)


def _rest(bodies: Sequence[bytes], taken: Sequence[_Field]) -> list[_Field]:
    """Return fields for all other bytes that differ: checksums, and what is not used."""
    columns = np.array([np.frombuffer(body, np.uint8) for body in bodies])
    differs = (columns != columns[0]).any(axis=0)
    for field in taken:
        differs[field.at : field.at + field.size] = False
    fields: list[_Field] = []
    for at in np.flatnonzero(differs).tolist():
        if differs[at]:
            end = at + int(np.argmin(np.append(differs[at:], False)))
            field = _checksum_around(at, bodies) or _Field(at, end - at, "free")
            fields.append(field)
            differs[field.at : field.at + field.size] = False
    return fields


def _checksum_around(place: int, bodies: Sequence[bytes]) -> _Field | None:
    """Return the checksum that has a byte; its other bytes may be equal in all samples."""
    for at in range(max(place - 3, 0), place + 1):
        for form in (0, 1):
            if all(int.from_bytes(body[at : at + 4], "little") == _checksum(body, at, form) for body in bodies):
                return _Field(at, 4, "checksum", form)
    return None


def _block(body: bytes, fields: Sequence[_Field]) -> _Block:
    form, at = "<", 0
    for field in fields:
        form += f"{field.at - at}s{field.code}"
        at = field.at + field.size
    compiled = struct.Struct(f"{form}{len(body) - at}s")
    return _Block(len(body), tuple(fields), compiled, compiled.unpack(body)[::2])


def _levels(blocks: Sequence[_Block], moving: Set[int]) -> tuple[tuple[int, ...], ...] | None:
    """Order blocks so that each comes after one that points to it; ``None`` if nothing points to a block."""
    known = {0, *range(len(blocks))} - (set(moving) - {0})
    levels: list[tuple[int, ...]] = []
    level = sorted(known)
    while level:
        levels.append(tuple(level))
        pointed = {field.number for n in level for field in blocks[n].fields if field.kind == "pointer"}
        level = sorted(pointed - known)
        known |= pointed
    return tuple(levels) if len(known) == len(blocks) else None


def _is_proved(template: Template, parsed: _Parsed, superblock: Superblock) -> bool:
    """Return whether parsers find what the template finds, with any bytes in the places that it does not compare."""
    superblock = superblock._replace(base=0, end=_END)
    return all(_agrees(template, parsed, superblock, trial) for trial in range(_N_PROOFS))


def _agrees(template: Template, parsed: _Parsed, superblock: Superblock, trial: int) -> bool:
    generator = random.Random(trial)
    places = [
        (n + 1 << 40) + generator.randrange(1 << 39) if place == _UNKNOWN else place
        for n, place in enumerate(template.places)
    ]
    values = [
        generator.randbytes(len(value))
        if (part, key) == ("layout", "data") or part == "attributes"
        else _stored(generator.randrange(1 << 50))
        for part, key in template.outputs
        for value in (_stored(_value(parsed.node, (part, key))),)
    ]
    blocks = {}
    for place, block, body in zip(places, template.blocks, parsed.blocks, strict=True):
        made = bytearray(body)
        for at, size, kind, number in sorted(block.fields, key=lambda field: field.kind == "checksum"):
            if kind == "checksum":
                raw = _checksum(bytes(made), at, number).to_bytes(4, "little")
            elif kind == "free":
                raw = bytes([(0, 255)[trial]] * size) if trial < 2 else generator.randbytes(size)
            else:
                raw = _stored(places[number]) if kind == "pointer" else values[number]
            made[at : at + size] = raw
        blocks[place] = bytes(made)
    try:
        expected = _run(read_whole(places[0], superblock), blocks)
    except (StructureError, KeyError):
        return False
    found = _run(template.read(places[0], superblock), blocks)
    return found is not None and _differences(found, expected) == []


def _run[T](parser: Parse[T], blocks: dict[int, bytes]) -> T:
    """Run a parser over blocks alone."""
    answers: Any = None
    while True:
        try:
            requests = parser.send(answers)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answers = [
            blocks[request.address][: request.size]
            if isinstance(request, Span)
            else np.array([np.frombuffer(blocks[at], np.uint8)[: request.size] for at in request.addresses.tolist()])
            for request in requests
        ]
