"""Images that belong together: a stack of pages, with overviews and masks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from virtualstack.errors import MalformedFileError
from virtualstack.formats.tiff.arrays import GDAL_METADATA, read_metadata
from virtualstack.formats.tiff.dialects import detect_dialect, dialect_note, read_dialect_series
from virtualstack.formats.tiff.image import Image, Images, Level, Series
from virtualstack.formats.tiff.structure import Directory, TiffStructure
from virtualstack.storage import Source
from virtualstack.warning import warn

_REDUCED, _MASK = 1, 4  # TIFF 6.0, tag 254
_OLD_REDUCED = 2  # tag 255
_SUB_DIRECTORIES = 330
_PLACE = frozenset({33550, 33922, 34264, 34735, 34736, 34737})
"""Tags of the position of an image on Earth: images at different positions are not a stack."""


@dataclass(slots=True)
class _Main:
    """An image of full resolution, with its overviews and masks."""

    image: Image
    overviews: list[Image] = field(default_factory=list)
    masks: list[Image] = field(default_factory=list)


def find_series(structure: TiffStructure, images: Images, source: Source, /) -> list[Series]:
    """Find the series of a file; there is at least one. Images from the first damaged one on are left out."""
    damage: list[str] = []
    found = _find(structure, images, source, damage)
    for note in damage:
        warn(note)
    return [replace(series, notes=(*series.notes, *damage)) for series in found]


def _find(structure: TiffStructure, images: Images, source: Source, damage: list[str]) -> list[Series]:
    directories: list[Directory] = []
    try:
        directories.extend(structure.chain())
    except MalformedFileError as error:
        if not directories:
            raise
        damage.append(_damaged(len(directories), error))
    dialect = None if damage else detect_dialect(structure, directories)  # its axes are those of all images
    note = None
    if dialect is not None:
        note = dialect_note(dialect, structure, directories)
        found = read_dialect_series(dialect, structure, images, source, directories)
        if found is not None:
            return [replace(series, notes=() if note is None else (note,)) for series in found]
    mains: list[_Main] = []
    taken = {directory.offset for directory in directories}
    for directory in directories:
        try:
            _add(mains, images.image(directory), _kind(structure, directory))
            _add_below(mains, structure, images, directory, taken)
        except MalformedFileError as error:
            if not mains:
                raise
            damage[:] = [_damaged(directory.number, error)]
            break
    return [replace(series, notes=() if note is None else (note,)) for series in _stacked(mains, structure)]


def _damaged(number: int, error: MalformedFileError) -> str:
    return f"image {number} and those after it are left out: {error}"


def _kind(structure: TiffStructure, directory: Directory) -> int:
    if 254 in directory.entries:
        return structure.number(directory, 254, 0)
    return _REDUCED if 255 in directory.entries and structure.number(directory, 255, 1) == _OLD_REDUCED else 0


def _add(mains: list[_Main], image: Image, kind: int) -> None:
    if kind & _MASK and mains:
        mains[-1].masks.append(image)
    elif kind & _REDUCED and mains:
        mains[-1].overviews.append(image)
    else:
        mains.append(_Main(image))


def _add_below(
    mains: list[_Main], structure: TiffStructure, images: Images, directory: Directory, taken: set[int]
) -> None:
    """Add the images of directories below another one: overviews, or further images of the same size."""
    if _SUB_DIRECTORIES not in directory.entries:
        return
    offsets = structure.values(directory, _SUB_DIRECTORIES)
    main = mains[-1]
    for offset in [] if offsets is None or offsets.dtype.kind not in "iu" else offsets.tolist():
        if not offset or offset in taken:
            continue
        taken.add(offset)
        image = images.image(structure.directory(offset, directory.number))
        own, other = image.layout, main.image.layout
        is_smaller = own.height < other.height and own.width < other.width
        if _kind(structure, image.directory) & _REDUCED or is_smaller:
            main.overviews.append(image)
        else:
            mains.append(_Main(image))


def _stacked(mains: list[_Main], structure: TiffStructure) -> list[Series]:
    alike: dict[tuple[Any, ...], list[_Main]] = {}
    known: dict[bytes, Any] = {}  # each text of GDAL's metadata is read once
    for main in mains:
        layouts = tuple(id(x.layout) for x in (main.image, *main.overviews, *main.masks))
        directory = main.image.directory
        place = structure.key(directory, _PLACE) if directory.entries.keys() & _PLACE else ()
        raw = structure.raw(directory, GDAL_METADATA) if GDAL_METADATA in directory.entries else b""
        if raw and raw not in known:
            known[raw] = read_metadata(structure, directory).scaling()
        alike.setdefault((len(main.overviews), layouts, place, known.get(raw)), []).append(main)
    return [_series(group) for group in alike.values()]


def _series(mains: list[_Main]) -> Series:
    n = len(mains)
    columns = [[main.image for main in mains]]
    columns += [[main.overviews[i] for main in mains] for i in range(len(mains[0].overviews))]
    columns.sort(key=lambda column: -column[0].layout.height * column[0].layout.width)
    levels = [Level(images=tuple(column)) for column in columns]
    for i, mask in enumerate(mains[0].masks):
        size = mask.layout.height, mask.layout.width
        for k, level in enumerate(levels):
            own = level.image.layout
            if (own.height, own.width) == size and not level.masks:
                levels[k] = replace(level, masks=tuple(main.masks[i] for main in mains))
                break
    return Series(levels=tuple(levels), pages=(("page", n),) if n > 1 else (), is_stack=n > 1)
