"""Files as programs and missions write them into HDF5, with the habits of each; made with h5py and netCDF4 alone."""

from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
from h5py import h5a, h5s, h5t

from tests.data.hdf5_parts import compound, dataset_of

RNG = np.random.default_rng(0)
TEXT = h5py.string_dtype()


def fixed(text: str) -> np.bytes_:
    """Give text of a fixed length, as C programs write attributes."""
    return np.bytes_(text.encode())


def matlab(path: Path) -> Path:
    """Write what ``save -v7.3`` does: a user block of text, cells as references into a group that is hidden."""
    with h5py.File(path, "w", userblock_size=512) as file:

        def put(name: str, values: np.ndarray, kind: str, **options: object) -> h5py.Dataset:
            dataset = file.create_dataset(name, data=values, **options)
            dataset.attrs["MATLAB_class"] = fixed(kind)
            if kind in ("char", "logical"):
                dataset.attrs["MATLAB_int_decode"] = np.int32(2 if kind == "char" else 1)
            return dataset

        def empty(name: str, kind: str, shape: tuple[int, ...] = (0, 0)) -> h5py.Dataset:
            dataset = put(name, np.array(shape, "u8"), kind)
            dataset.attrs["MATLAB_empty"] = np.uint8(1)
            return dataset

        def letters(text: str) -> np.ndarray:
            return np.array([[ord(x)] for x in text], "u2")

        put("scalar", np.array([[3.5]]), "double")
        put("matrix", RNG.random((40, 30)), "double", chunks=(20, 30), compression="gzip", compression_opts=3)
        put("flags", RNG.integers(0, 2, (3, 4)).astype("u1"), "logical")
        put("title", letters("grüße"), "char")
        empty("nothing", "double")
        empty("no_text", "char")
        put("z", np.array([[(1.0, -1.0)], [(2.5, 0.0)]], [("real", "f8"), ("imag", "f8")]), "double")
        refs = file.create_group("#refs#")
        empty("#refs#/a", "canonical empty")
        put("#refs#/b", letters("in a cell"), "char")
        put("#refs#/c", np.arange(3.0)[:, None], "double")
        cell = [[refs[x].ref] for x in "abc"]
        put("cell", np.array(cell, h5py.ref_dtype), "cell", dtype=h5py.ref_dtype)
        struct = file.create_group("s")
        struct.attrs["MATLAB_class"] = fixed("struct")
        fields = np.empty(2, object)
        fields[:] = [np.array([*x], "S1") for x in ("value", "name")]
        struct.attrs.create("MATLAB_fields", fields, dtype=h5py.vlen_dtype(np.dtype("S1")))
        put("s/value", np.array([[7.0]]), "double")
        put("s/name", letters("seven"), "char")
        sparse = file.create_group("sparse")
        sparse.attrs["MATLAB_class"] = fixed("double")
        sparse.attrs["MATLAB_sparse"] = np.uint64(5)
        sparse["data"], sparse["ir"], sparse["jc"] = (
            np.array([1.0, 2.0]),
            np.array([0, 4], "u8"),
            np.array([0, 1, 2], "u8"),
        )
        put("#subsystem#/MCOS", np.array([[refs["c"].ref]], h5py.ref_dtype), "FileWrapper__", dtype=h5py.ref_dtype)
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5 schema 1.00 ."
    with path.open("r+b") as raw:
        raw.write(head.ljust(124) + b"\0\2IM")
    return path


def nwb(path: Path) -> Path:
    """Write what neurophysiologists share: tables of columns, references in attributes and compounds, links."""
    with h5py.File(path, "w") as file:
        file.attrs["nwb_version"] = "2.7.0"
        file.attrs["neurodata_type"] = "NWBFile"
        specification = file.create_group("specifications/core/2.7.0")
        specification.create_dataset("namespace", data='{"namespaces": ["core"]}', dtype=TEXT)
        file.attrs[".specloc"] = file["specifications"].ref
        file.create_dataset("file_create_date", data=["2024-01-01T00:00:00+00:00"], maxshape=(None,), dtype=TEXT)
        file.create_dataset("session_description", data="a mouse", dtype=TEXT)
        series = file.create_group("acquisition/lfp 1")
        series.attrs["neurodata_type"] = "ElectricalSeries"
        data = series.create_dataset("data", data=RNG.integers(-99, 99, (64, 4), "i2"), chunks=(32, 4), compression=4)
        data.attrs.update({"conversion": 1e-6, "resolution": -1.0, "unit": "volts"})
        series["timestamps"] = np.arange(64.0)
        series["timestamps"].attrs["interval"] = np.int32(1)
        table = file.create_group("general/extracellular_ephys/electrodes")
        table.attrs["colnames"] = np.array(["x", "location", "group"], object)
        table["id"], table["x"] = np.arange(4), RNG.random(4)
        table.create_dataset("location", data=["CA1"] * 4, dtype=TEXT)
        probe = file.create_group("general/extracellular_ephys/probe")
        table.create_dataset("group", data=[probe.ref] * 4, dtype=h5py.ref_dtype)
        region = series.create_dataset("electrodes", data=np.arange(4))
        region.attrs["table"] = table.ref
        units = file.create_group("units")
        units["spike_times"], units["spike_times_index"] = RNG.random(9), np.array([3, 9], "u1")
        units["spike_times_index"].attrs["target"] = units["spike_times"].ref
        pair = np.dtype([("idx_start", "i4"), ("count", "i4"), ("timeseries", h5py.ref_dtype)])
        rows = np.array([(0, 3, data.ref), (3, 5, data.ref)], pair)
        file.create_dataset("intervals/trials/timeseries", data=rows)
        mask = np.array([(1, 2, 0.5), (3, 4, 0.25)], [("x", "u4"), ("y", "u4"), ("weight", "f4")])
        file.create_dataset("processing/ophys/pixel_mask", data=mask)
        derived = file.create_group("processing/ecephys/filtered")
        derived["timestamps"] = h5py.SoftLink("/acquisition/lfp 1/timestamps")
        derived["source"] = h5py.SoftLink("/acquisition/lfp 1")
        derived["video"] = h5py.ExternalLink("video.nwb", "/acquisition/video")
        file.create_group("scratch")
    return path


def anndata(path: Path) -> Path:
    """Write a table of cells by genes: sparse rows, categories, columns that may have no value."""
    with h5py.File(path, "w") as file:

        def kind(group: h5py.Group | h5py.Dataset, name: str, **attributes: object) -> h5py.Group | h5py.Dataset:
            group.attrs.update({"encoding-type": name, "encoding-version": "0.1.0", **attributes})
            return group

        kind(file, "anndata")
        x = kind(file.create_group("X"), "csr_matrix", shape=np.array([5, 3]))
        x.create_dataset("data", data=RNG.random(4).astype("f4"), chunks=(4,), maxshape=(None,), compression="gzip")
        x.create_dataset("indices", data=np.array([0, 2, 1, 1], "i4"), chunks=(4,), maxshape=(None,))
        x["indptr"] = np.array([0, 2, 2, 3, 4, 4], "i4")
        columns = np.array(["cell type", "n_counts", "a/b".replace("/", "∕")], object)
        obs = kind(file.create_group("obs"), "dataframe", **{"_index": "_index", "column-order": columns})
        obs.create_dataset("_index", data=[f"AAAC-{i}" for i in range(5)], dtype=TEXT)
        cells = kind(obs.create_group("cell type"), "categorical", ordered=np.bool_(False))
        cells["codes"] = np.array([0, 1, -1, 0, 1], "i1")
        cells.create_dataset("categories", data=["B cell", "T cell"], dtype=TEXT)
        counts = kind(obs.create_group("n_counts"), "nullable-integer")
        counts["values"], counts["mask"] = np.arange(5), np.array([False, True, False, False, True])
        obs[str(columns[2])] = np.arange(5.0)
        var = kind(file.create_group("var"), "dataframe", **{"_index": "gene", "column-order": np.empty(0)})
        var.create_dataset("gene", data=["Actb", "Gapdh", "ü"], dtype=TEXT)
        kind(file.create_group("layers"), "dict")
        kind(file.create_group("obsm"), "dict").create_dataset("X_pca", data=RNG.random((5, 2)))
        uns = kind(file.create_group("uns"), "dict")
        uns.create_dataset("log1p/base", data=h5py.Empty("f4"))
        uns.create_dataset("name", data="pbmc", dtype=TEXT)
        uns.create_dataset("flag", data=np.bool_(True))
        names = np.array([("Actb", "Gapdh"), ("ü", "Actb")], [("0", TEXT), ("1", TEXT)])
        uns.create_dataset("rank_genes_groups/names", data=names)
        uns.create_dataset("rank_genes_groups/scores", data=np.ones(2, [("0", "f4"), ("1", "f4")]))
    return path


def icesat2(path: Path, n_beams: int = 6, n_groups: int = 10) -> Path:
    """Write tracks of beams: hundreds of groups with a time axis of their own, in which photons are counted."""
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        file.attrs["short_name"] = fixed("ATL06")
        file.attrs["Conventions"] = fixed("CF-1.6")
        epoch = file.create_dataset("ancillary_data/atlas_sdp_gps_epoch", data=np.array([1198800018.0]), chunks=(1,))
        epoch.attrs["units"] = fixed("seconds since 1980-01-06T00:00:00.000000Z")
        file.create_dataset("METADATA/control", data=np.array([b"key = value\n" * 40], "S480"))
        for beam in [f"gt{1 + i // 2}{'lr'[i % 2]}" for i in range(n_beams)]:
            for number in range(n_groups):
                n = 20 + number
                group = file.create_group(f"{beam}/part_{number:02d}")
                time = group.create_dataset("delta_time", data=np.arange(n, dtype="f8"), chunks=(10,), maxshape=(None,))
                time.make_scale("delta_time")
                time.attrs["units"] = fixed("seconds since 2018-01-01")
                for name, kind in {"h_li": "f4", "latitude": "f8", "atl06_quality_summary": "i1"}.items():
                    values = RNG.integers(0, 5, n).astype(kind)
                    data = group.create_dataset(
                        name, data=values, chunks=(10,), maxshape=(None,), compression=6, shuffle=True
                    )
                    data.dims[0].attach_scale(time)
                    data.attrs["coordinates"] = fixed("delta_time latitude longitude")
                    data.attrs["_FillValue"] = np.array(127, kind)
            group.attrs["Description"] = fixed("of " + beam)
            file[f"{beam}/segment_time"] = h5py.SoftLink("part_00/delta_time")
    return path


def goes(path: Path) -> Path:
    """Write an image of a geostationary satellite: packed axes, unsigned numbers in signed ones, scalars, flags."""
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"Conventions": "CF-1.7", "title": "ABI L2 Cloud Top Height", "instrument_ID": "FM1"})
        for name, n in {"y": 12, "x": 10, "number_of_time_bounds": 2, "number_of_image_bounds": 2}.items():
            file.createDimension(name, n)
        how = {"zlib": True, "shuffle": True, "chunksizes": (6, 10), "fill_value": -1}
        height = file.createVariable("HT", "i2", ("y", "x"), **how)
        height.setncatts({"_Unsigned": "true", "scale_factor": np.float32(0.3), "add_offset": np.float32(0)})
        height.setncatts(
            {"valid_range": np.array([0, -6], "i2"), "units": "m", "grid_mapping": "goes_imager_projection"}
        )
        height.coordinates = "t y x"
        flags = file.createVariable("DQF", "i1", ("y", "x"), **how)
        flags.setncatts(
            {"_Unsigned": "true", "flag_values": np.array([0, 1, 6], "i1"), "flag_meanings": "good bad ugly"}
        )
        kind = file.createEnumType("u1", "phase_t", {"clear": 0, "liquid": 1, "ice": 2})
        phase = file.createVariable("Phase", kind, ("y", "x"), zlib=True)
        phase[:] = RNG.integers(0, 3, (12, 10)).astype("u1")
        for variable, high in ((height, 300), (flags, 7)):
            variable.set_auto_maskandscale(False)
            variable[:] = RNG.integers(-1, high, (12, 10))
        for axis, n in (("y", 12), ("x", 10)):
            scale = file.createVariable(axis, "i2", (axis,))
            scale.setncatts(
                {"scale_factor": np.float32(5.6e-05), "add_offset": np.float32(-0.15), "units": "rad", "axis": axis}
            )
            scale.set_auto_maskandscale(False)
            scale[:] = np.arange(n)
        time = file.createVariable("t", "f8", ())
        time.setncatts({"units": "seconds since 2000-01-01 12:00:00", "bounds": "time_bounds", "axis": "T"})
        time[...] = 5.6e8
        bounds = file.createVariable("time_bounds", "f8", ("number_of_time_bounds",))
        bounds[:] = [5.6e8 - 1, 5.6e8 + 1]
        projection = file.createVariable("goes_imager_projection", "i4", ())
        projection.setncatts({"grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0})
        projection[...] = -2147483647
    return path


def pytables(path: Path) -> Path:
    """Write a table of pandas and arrays of PyTables: compounds of blocks, bitfields for bools, empty texts."""
    with h5py.File(path, "w") as file:

        def mark(node: h5py.Group | h5py.Dataset, kind: str, **attributes: object) -> h5py.Group | h5py.Dataset:
            node.attrs["CLASS"] = fixed(kind)
            node.attrs["VERSION"] = fixed("1.0")
            # an empty text: PyTables gives it no value
            h5a.create(node.id, b"TITLE", h5t.C_S1, h5s.create(h5s.NULL))
            for name, value in attributes.items():
                node.attrs[name] = value
            return node

        mark(file, "GROUP", PYTABLES_FORMAT_VERSION=fixed("2.1"))
        frame = mark(file.create_group("df"), "GROUP", pandas_type=fixed("frame_table"), encoding=fixed("UTF-8"))
        rows = np.zeros(20, [("index", "i8"), ("values_block_0", "f8", (2,)), ("values_block_1", "S8", (1,))])
        rows["index"], rows["values_block_0"], rows["values_block_1"] = np.arange(20), RNG.random((20, 2)), b"text"
        table = frame.create_dataset(
            "table", data=rows, chunks=(8,), maxshape=(None,), compression="gzip", shuffle=True
        )
        mark(table, "TABLE", FIELD_0_NAME=fixed("index"), FIELD_0_FILL=np.int64(0), NROWS=np.int64(20))
        table.attrs["values_block_0_kind"] = fixed("(lp1\nVa\np2\naVb\np3\na.")
        index = mark(file.create_group("df/_i_table/index"), "INDEX", DIRTY=np.int8(0))
        for name, shape in {"abounds": (0,), "sorted": (0, 1024), "sortedLR": (21,), "indices": (0, 1024)}.items():
            data = index.create_dataset(name, shape, "i8", maxshape=(None, *shape[1:]), chunks=(16, *shape[1:]))
            mark(data, "EARRAY", EXTDIM=np.int32(0))
        bits = dataset_of(file, "mask", h5t.STD_B8LE, (5, 4), raw=RNG.integers(0, 2, (5, 4)).astype("u1"))
        mark(bits, "CARRAY")
        mark(file.create_dataset("z", data=RNG.random(4) + 1j), "ARRAY")
        rows = np.array([(1, 1.5), (0, 2.5)], [("ok", "u1"), ("x", "f8")]).view("V9")
        row = compound(9, ("ok", 0, h5t.STD_B8LE), ("x", 1, h5t.IEEE_F64LE))
        mark(dataset_of(file, "flags", row, (2,), raw=rows), "TABLE")
        mark(dataset_of(file, "when", h5t.UNIX_D64LE, (3,), raw=np.zeros(3, "V8")), "EARRAY")
        pickles = file.create_dataset("objects", (2,), h5py.vlen_dtype(np.dtype("u1")))
        pickles[0] = np.arange(5, dtype="u1")
        mark(pickles, "VLARRAY", PSEUDOATOM=fixed("object"))
    return path


def keras(path: Path) -> Path:
    """Write the weights of a model: names with colons, a long text, layers without any."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.15.0"
        file.attrs["model_config"] = '{"class_name": "Sequential"}' * 2000
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = np.array([b"dense", b"dropout"])
        layer = weights.create_group("dense")
        layer.attrs["weight_names"] = np.array([b"dense/kernel:0", b"dense/bias:0"])
        layer["dense/kernel:0"], layer["dense/bias:0"] = RNG.random((8, 4)).astype("f4"), np.zeros(4, "f4")
        weights.create_group("dropout").attrs["weight_names"] = np.empty(0)
        weights["top_level_model_weights"] = h5py.SoftLink("/nowhere")
        file.create_dataset("optimizer_weights/iteration:0", data=np.int64(7))
    return path


ODD_NAMES = (
    "#refs#",
    "a b",
    "a.b",
    ".hidden",
    "0",
    "0.0",
    "a:b",
    "é",
    "%20",
    "?x=1",
    "a\\b",
    "*",
    "c",
    '"',
    "'",
    "{{x}}",
)


def odd_names(path: Path) -> Path:
    """Write datasets and groups of names that mean something to others than HDF5."""
    with h5py.File(path, "w") as file:
        for number, name in enumerate(ODD_NAMES):
            file.create_dataset(f"{name}/{name}", data=np.arange(6.0) + number, chunks=(4,))
            file.create_dataset(f"of {name}", data=np.arange(6.0) - number, chunks=(4,)).attrs[name] = name
    return path


PRODUCTS: dict[str, Callable[[Path], Path]] = {
    "matlab.mat": matlab,
    "nwb.nwb": nwb,
    "anndata.h5ad": anndata,
    "icesat2.h5": icesat2,
    "goes.nc": goes,
    "pytables.h5": pytables,
    "keras.h5": keras,
    "odd_names.h5": odd_names,
}
