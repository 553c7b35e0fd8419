"""The pipeline of a dataset as h5py gives it."""

from h5py import h5p

from virtualstack.formats.hdf5.filters import Filter, make_filter


def filters_of(dcpl: h5p.PropDCID, /) -> tuple[Filter, ...]:
    """Read the pipeline of a dataset, in the order of encoding."""
    steps = (dcpl.get_filter(i) for i in range(dcpl.get_nfilters()))
    return tuple(make_filter(code, name, values) for code, _, values, name in steps)
