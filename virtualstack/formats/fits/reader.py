"""The reader of FITS files.

The steps from a file to a group: `headers` finds the HDUs, `tables` the types of rows; this module names variables and
dimensions, and makes coordinates of linear axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError, run_in_child
from virtualstack.codecs.codec import Codec
from virtualstack.formats.base import ReadOptions
from virtualstack.formats.fits.headers import HDU, MAX_AXES, read_hdus
from virtualstack.formats.fits.tables import NotATableError, row_dtype
from virtualstack.formats.rows import RowReader, place_rows, row_chunks
from virtualstack.manifests import Fill, ManifestArray, ManifestGroup, Refusal, inline_array, value_changing
from virtualstack.storage import Source, Storage

_LETTERS = "xyz"
_MAX_LABELS = 1 << 16  # of an axis that gets coordinates
_SIGN_BIT: dict[str, tuple[float, str]] = {
    "u1": (-(2.0**7), "i1"),
    "i2": (2.0**15, "u2"),
    "i4": (2.0**31, "u4"),
    "i8": (2.0**63, "u8"),
}
"""BZERO with which integers of a type stand for those of the other sign (standard, table 11), and that type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FITS(RowReader):
    """Reader of FITS files. It reads only the headers of all HDUs; astropy parses their cards.

    Each image is a variable with the name of its HDU (``EXTNAME``, else ``PRIMARY`` or ``HDU1``), along ``y`` and
    ``x``. Values are those of astropy: BSCALE, BZERO and BLANK are attributes that decode them. A binary table is a
    variable of compounds along ``row``. The other cards are attributes. Axes of a linear WCS have coordinates.

    When to use: the reader is chosen by the first bytes of a file. Name it to set the size of chunks. Alternatives:
    ``astropy.io.fits`` for a table with columns that are scaled or of variable length.

    Parameters
    ----------
    chunk_size
        Maximum bytes of a chunk, as a number or text such as ``"4 MiB"``. ``"auto"`` cuts images of more than 16 MiB
        into equal chunks, if their lengths have a suitable divisor. ``None`` makes each image one chunk.

    Raises
    ------
    ValueError
        ``chunk_size`` is not a positive number of bytes.

    Examples
    --------
    >>> import numpy as np
    >>> import virtualstack as vs
    >>> from astropy.io import fits
    >>> fits.PrimaryHDU(np.arange(6.0).reshape(2, 3)).writeto("image.fits")
    >>> vs.open_virtual_dataset("image.fits").virtual.open()["PRIMARY"].values
    array([[0., 1., 2.],
           [3., 4., 5.]])
    """

    name: ClassVar[str] = "fits"

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return the images and tables of a file as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The file is not a FITS file, contradicts itself, or is truncated.
        StorageError
            The bytes could not be read.
        """
        source = storage.source(url)
        found = _Found()
        attributes: dict[str, Any] = {}
        end = 0
        for hdu in read_hdus(source):
            end = hdu.end
            if hdu.size == 0:
                if hdu.number == 0:
                    attributes = hdu.attributes()
                continue
            name = found.new_name(hdu)
            if options.drops(name):
                continue
            try:
                if "/" in name:
                    raise NotATableError("its name has a '/', which paths of groups have")
                found.arrays[name] = self._array(hdu, name, source, options, found)
            except NotATableError as error:
                size = error.args[1] if len(error.args) > 1 else 0
                found.refusals.append(Refusal(path=f"/{name}", reason=error.args[0], inline_size=size))
        if end < source.size:
            reason = f"{source.size - end} bytes after the last HDU are left out"
            found.refusals.append(Refusal(path="/", reason=reason, kind="noted"))
        return ManifestGroup(
            arrays=found.arrays | found.labels,
            attributes=attributes,
            refusals=tuple(found.refusals),
            url=source.location.url,
        )

    def _array(self, hdu: HDU, name: str, source: Source, options: ReadOptions, found: _Found) -> ManifestArray:
        kind = str(hdu.value("XTENSION", "IMAGE")).strip()
        if hdu.is_groups or kind not in ("IMAGE", "BINTABLE"):
            raise NotATableError(f"it is {'a set of random groups' if hdu.is_groups else kind}; read it with astropy")
        attributes = hdu.attributes()
        if hdu.value("ZIMAGE") is True:
            dims = found.dims(hdu, name, hdu.shape("Z"))
            values = _decompressed(hdu, source, options.inline_limit)
            found.refusals.append(Refusal(path=f"/{name}", reason="it is compressed by tiles", kind="inlined"))
            return inline_array(values, name=f"/{name}", dims=dims, attributes=attributes, cf={})
        shape = hdu.shape()
        codecs: tuple[Codec, ...] = ()
        cf: dict[str, Any] = {}
        if kind == "BINTABLE":
            stored, shape = row_dtype(hdu), shape[:1]
            dtype = stored.newbyteorder("=")
            dims = (found.dim("row", shape[0], None, name),)
        else:
            stored, dims = hdu.dtype(), found.dims(hdu, name, shape)
            dtype = stored.newbyteorder("=")
            scale, zero = hdu.value("BSCALE", 1), hdu.value("BZERO", 0)
            if not all(type(x) in (int, float) for x in (scale, zero)):
                hdu.fail(f"BSCALE or BZERO of HDU {hdu.number} is not a number")
            shift, other = _SIGN_BIT.get(stored.str[1:], (None, ""))
            if scale == 1 and zero == shift:
                dtype = np.dtype(other)
                if other == "u8":
                    raise NotATableError("it has unsigned integers of 64 bits; read it with astropy")
                config = {"offset": zero, "scale": 1, "dtype": dtype.str, "astype": stored.str}
                codecs = (Codec.from_config("numcodecs.fixedscaleoffset", **config),)
            else:
                if (scale, zero) != (1, 0):
                    cf = {"scale_factor": float(scale), "add_offset": float(zero)}
                blank = hdu.value("BLANK")
                if type(blank) is int and stored.kind in "iu" and np.can_cast(np.min_scalar_type(blank), stored):
                    cf["_FillValue"] = stored.newbyteorder("=").type(blank)
        chunks = place_rows(
            source.location,
            hdu.offset,
            stored,
            shape,
            row_chunks(shape, stored.itemsize, self._most_bytes(), is_equal=self.chunk_size == "auto"),
            Fill.zero(dtype),
        )
        manifest = chunks.manifest
        if codecs:
            encodings = tuple(replace(x, dtype=dtype, codecs=codecs) for x in manifest.encodings)
            manifest = replace(manifest, encodings=encodings)
        return ManifestArray(
            manifest=manifest,
            grid=chunks.grid,
            dtype=dtype,
            name=f"/{name}",
            dimension_names=dims,
            attributes=attributes | cf,
            cf=value_changing(cf),
        )


@dataclass(slots=True)
class _Found:
    """Variables, and names that are taken: no variable has the name of a dimension."""

    arrays: dict[str, ManifestArray] = field(default_factory=dict)
    labels: dict[str, ManifestArray] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    names: set[str] = field(default_factory=lambda: {"row", *_LETTERS, *(f"axis{i}" for i in range(MAX_AXES + 1))})
    taken: dict[str, tuple[int, bytes | None]] = field(default_factory=dict)

    def new_name(self, hdu: HDU) -> str:
        """Return the name of an HDU, with its version or number if it is taken."""
        name = str(hdu.value("EXTNAME", "")).strip() or ("PRIMARY" if hdu.number == 0 else f"HDU{hdu.number}")
        others = f"{name}_{hdu.value('EXTVER', 1)}", f"{name}_HDU{hdu.number}"
        return self._free(next((x for x in (name, *others) if x not in self.names), others[-1]))

    def _free(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def dim(self, letter: str, length: int, labels: NDArray[np.float64] | None, name: str) -> str:
        """Return the dimension of an axis: a letter, and the name of the variable if another one has the letter."""
        key = length, None if labels is None else labels.tobytes()
        return letter if self.taken.setdefault(letter, key) == key else self._free(f"{letter}_{name}")

    def dims(self, hdu: HDU, name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Return the dimensions of an image, with coordinates of its linear axes."""
        dims = []
        for number, length in zip(range(len(shape), 0, -1), shape, strict=True):
            labels = _labels(hdu, number, length)
            letter = _LETTERS[number - 1] if number <= len(_LETTERS) else f"axis{number}"
            dims.append(dim := self.dim(letter, length, labels, name))
            if labels is not None:
                cards = {key: hdu.value(f"{key}{number}") for key in ("CTYPE", "CUNIT")}
                attributes = {key: value for key, value in cards.items() if value}
                self.labels[dim] = inline_array(labels, name=f"/{dim}", dims=[dim], attributes=attributes)
        return tuple(dims)


def _labels(hdu: HDU, number: int, length: int) -> NDArray[np.float64] | None:
    """Return the coordinates of an axis whose WCS is linear and not rotated (standard, section 8.1), or ``None``."""
    ctype = str(hdu.value(f"CTYPE{number}", "")).strip()
    numbers = [hdu.value(f"{key}{number}", default) for key, default in (("CRVAL", None), ("CRPIX", 0), ("CDELT", 1))]
    is_known = all(type(x) in (int, float) for x in numbers)
    cards = [x for x in hdu.header if x.startswith(("PC", "CD", "CROTA", "PV"))]
    is_turned = any(x[2:3].isdigit() or x.startswith("CROTA") for x in cards)
    if not is_known or "-" in ctype or is_turned or not 0 < length <= _MAX_LABELS:
        return None
    value, pixel, step = map(float, numbers)
    return np.asarray(value + (np.arange(1, length + 1) - pixel) * step, np.float64)


def _decompressed(hdu: HDU, source: Source, limit: int) -> NDArray[Any]:
    size = math.prod(hdu.shape("Z")) * hdu.dtype("Z").itemsize
    if size > limit:
        raise NotATableError(
            f"it is compressed by tiles, so its values are read; its {size} bytes are more than the inline limit of "
            f"{limit}",
            size,
        )
    raw = source.read(hdu.begin, hdu.offset + hdu.size - hdu.begin)
    try:
        values = run_in_child("virtualstack.formats.fits.unpacked:tiled_image", raw)
    except (LibraryError, ChildDiedError) as error:
        hdu.fail(f"astropy cannot decompress HDU {hdu.number}: {error}")
    if values.shape != hdu.shape("Z"):
        hdu.fail(f"the image of HDU {hdu.number} has the shape {values.shape}, and its header says {hdu.shape('Z')}")
    return np.asarray(values)
