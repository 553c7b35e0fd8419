"""Re-encode, within a budget, chunks that a target cannot take unchanged; only vstacks can hold ABSENT chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from virtualstack.codecs.pipeline import CodecError
from virtualstack.errors import UNCHANGED, Remedy, WriterError
from virtualstack.manifests import INLINE, ManifestArray, inlined, repack
from virtualstack.options import OnAbsent
from virtualstack.printable import counted
from virtualstack.reading import check_absent, read_array
from virtualstack.sizes import byte_count
from virtualstack.storage import Storage, StorageLike
from virtualstack.system import Threads
from virtualstack.zarr.client import Client
from virtualstack.zarr.metadata.encode import encode_cell
from virtualstack.zarr.rewrite.plan import RewritePlan, plan_anew, plan_rewrite

_MAX_THREADS = 8
_MAX_DECODED_BYTES = 1 << 30
"""Bytes of decoded chunks that are encoded at a time; a larger chunk is encoded alone."""
_BATCH_CELLS = 64


def rewrite_limit(rewrite: str | float, stored: int, /) -> int:
    """Return how many bytes of a variable may be re-encoded, from a user's ``rewrite=`` and the bytes that are stored.

    >>> rewrite_limit("1%", 5000), rewrite_limit("64 KiB", 5000)
    (50, 65536)
    """
    if isinstance(rewrite, float | np.floating) or (isinstance(rewrite, str) and rewrite.strip().endswith("%")):
        try:
            fraction = float(rewrite.strip()[:-1]) / 100 if isinstance(rewrite, str) else float(rewrite)
        except ValueError:
            fraction = -1.0
        if 0 <= fraction <= (1e9 if isinstance(rewrite, str) else 1):
            return math.floor(fraction * stored * (1 + 1e-9))
    elif not isinstance(rewrite, bool):
        return byte_count(rewrite, option="rewrite")
    raise ValueError(
        f"rewrite={rewrite!r} is not a budget. Give a part of the stored bytes, such as '1%' or 0.01, or a "
        "number of bytes, such as 65536 or '64 MiB'"
    )


def fitting(
    target: Client,
    /,
    *,
    inline_limit: int,
    rewrite: str | float | None,
    absent: OnAbsent,
    storage: StorageLike,
) -> Callable[[ManifestArray], ManifestArray]:
    """Check options of a user, and return a function that changes an array as little as a target needs.

    The function returns the array unchanged, with some chunks re-encoded within the budget, or with all values as one
    inline chunk. A manifest that is not in memory is read one part at a time, if the target can do that, and as a whole
    only if it has to change.
    """
    check_absent(absent)
    if rewrite is not None:
        rewrite_limit(rewrite, 0)

    def fitted(array: ManifestArray) -> ManifestArray:
        made = _fit(array, target, inline_limit, rewrite, storage)
        if absent == "raise":
            _refuse_absent(made, target.name)
        return made

    return fitted


def _fit(
    array: ManifestArray, target: Client, inline_limit: int, budget: str | float | None, storage: StorageLike
) -> ManifestArray:
    seen = repack(array if target.streams else array.whole())
    reason = target.why_not_plain(seen)
    if reason is None:
        return seen
    array = repack(array.whole()) if target.streams else seen
    plan = plan_rewrite(array, target)
    limit = 0 if budget is None else rewrite_limit(budget, plan.stored)
    is_small = is_inlined(array, inline_limit)
    if plan.cells.size:
        if is_small and (budget is None or plan.nbytes > limit or array.nbytes <= plan.nbytes):
            return _with_values(array, storage)
        if target.takes_grid(array):
            return array
        if budget is None:
            _refuse_absent_parts(plan)
            what = f"cannot be written as {target.name}: {reason}. {plan} would have to be re-encoded and stored with"
            raise _error(array, f"{what} the references", *plan.remedies(), *UNCHANGED[1:], feature=reason)
    try:
        changed = repack(rewrite(plan, limit, storage))
    except WriterError:
        if not is_small:
            raise
        return _with_values(array, storage)
    # EMPTY and ABSENT cells may read as a value that no stored number unpacks to; attributes cannot pack such values.
    reason = target.why_not_plain(changed)
    if reason is None or target.takes_grid(changed):
        return changed
    if is_small:
        return _with_values(array, storage)
    raise _error(array, f"cannot be written as {target.name}: {reason}", *UNCHANGED, feature=reason)


def is_inlined(array: ManifestArray, inline_limit: int, /) -> bool:
    """Return whether all values of an array may be stored in a target instead of its chunks."""
    return array.nbytes <= inline_limit and not array.in_memory().summary().n_absent


def _with_values(array: ManifestArray, storage: StorageLike) -> ManifestArray:
    return inlined(array, read_array(array, (), storage))


def _error(array: ManifestArray, what: str, *remedies: Remedy, feature: str = "rewrite") -> WriterError:
    name = (array.name or "").lstrip("/")
    return WriterError(f"variable '{name}' {what}", *remedies, variable=name, feature=feature)


_WITHOUT_ABSENT = Remedy("restore their sources"), Remedy("leave the variable out")


def rewrite(plan: RewritePlan, limit: int, storage: StorageLike = None, /) -> ManifestArray:
    """Carry out a plan: chunks that a target cannot take become INLINE; each is read, encoded and checked.

    Values may not fit the plan's encoding, because other values are packed or cast. Then all chunks are encoded as
    unpacked values, if the limit allows it.
    """
    _refuse_absent_parts(plan)
    if plan.nbytes > limit:
        raise _over_budget(plan, plan.nbytes, plan.remedies(), limit)
    try:
        return _carried_out(plan, limit, Storage.from_option(storage))
    except CodecError as error:
        remedies = []
        anew = plan_anew(plan.array, plan.target)
        if anew is not None and anew.encoding != plan.encoding:
            if anew.nbytes <= limit:
                return rewrite(anew, limit, storage)
            remedies = [anew.to_re_encode()]
        what = f"has {plan} that must be re-encoded in the form of its other chunks, but {error}"
        raise _error(plan.array, what, *remedies, UNCHANGED[0]) from error


def _refuse_absent_parts(plan: RewritePlan, /) -> None:
    """Raise an error if re-encoded chunks would show ABSENT chunks."""
    if plan.n_absent:
        raise _error(
            plan.array,
            f"has {plan} that must be re-encoded. {counted(plan.n_absent, 'part')} of them would come from ABSENT "
            "chunks, and then look like values",
            *_WITHOUT_ABSENT,
            feature="ABSENT chunks",
        )


def _carried_out(plan: RewritePlan, limit: int, storage: Storage) -> ManifestArray:
    entries = plan.manifest.entries.copy()
    heap, spans = [plan.manifest.inline], dict[bytes, tuple[int, int]]()
    end, total, done = len(plan.manifest.inline), 0, 0
    flat = entries.reshape(-1)
    decoded = plan.encoding.size * max(plan.encoding.dtype.itemsize, 1)
    n_threads = max(1, min(_MAX_THREADS, _MAX_DECODED_BYTES // max(decoded, 1)))
    with Threads(n_threads, thread_name_prefix="virtualstack-rewrite") as pool:
        try:
            for cells in np.split(plan.cells, range(_BATCH_CELLS, len(plan.cells), _BATCH_CELLS)):
                made = pool.map(lambda cell: _encoded(plan, cell, storage), cells.tolist())
                for cell, raw in zip(cells.tolist(), made, strict=True):
                    if raw not in spans:
                        spans[raw] = (end, len(raw))
                        heap.append(raw)
                        end += len(raw)
                    total, done = total + len(raw), done + 1
                    flat[cell] = (INLINE, 0, *spans[raw])
                if total > limit:
                    rest = len(plan.cells) - done
                    most = total + rest * max(plan.most_bytes, -(-total // done))
                    remedy = Remedy("allow {}, which is the most it can be", rewrite=plan.part(most))
                    raise _over_budget(plan, total + -(-total * rest // done), [remedy, UNCHANGED[0]], limit)
        finally:
            pool.shutdown(cancel_futures=True)
    manifest = replace(plan.manifest, entries=entries, inline=b"".join(heap))
    return replace(plan.array, manifest=manifest, grid=plan.grid)


def _encoded(plan: RewritePlan, cell: int, storage: Storage) -> bytes:
    """Read the values of one chunk and encode them."""
    index = np.unravel_index(cell, plan.grid.shape) if plan.grid.shape else ()
    values = read_array(plan.array, plan.grid.box(map(int, index)), storage)
    return encode_cell(values, plan.chunks, plan.order, plan.encoding)


def _over_budget(plan: RewritePlan, nbytes: int, remedies: Sequence[Remedy], limit: int) -> WriterError:
    what = f"has {plan} that must be re-encoded; this takes about {nbytes:,} bytes, more than the {limit:,} allowed"
    return _error(plan.array, what, *remedies)


def _refuse_absent(array: ManifestArray, target: str) -> None:
    """Raise `WriterError` if an array has ABSENT chunks."""
    n_absent = array.manifest.usage.n_absent
    if n_absent:
        raise _error(
            array,
            f"has {counted(n_absent, 'ABSENT chunk')}, which {target} cannot distinguish from chunks that were never "
            "written",
            *_WITHOUT_ABSENT,
            Remedy("write a vstack"),
            Remedy("pass {}, so that they read as the fill value", absent="fill"),
            feature="ABSENT chunks",
        )
