"""Files described by their indexes: as a scan and cfgrib describe them, or an error that names what differs."""

import pickle
import shutil

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import index_of, merged, message, write, write_run
from tests.formats.groups import group_of
from tests.servers import RangeServer
from virtualstack.errors import ReaderError, SourceNotFoundError, TemplateError, UnsupportedFeatureError
from virtualstack.formats.grib.records import Records
from virtualstack.readers import GRIB, GRIBTemplate

KINDS = ".idx", ".index"
LEVELS = {"typeOfLevel": "isobaricInhPa"}
RAIN = {"typeOfLevel": "surface"}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """Suffix of the indexes of a product."""
    return request.param


@pytest.fixture(scope="module")
def runs(kind, tmp_path_factory):
    """Two runs of a model, and the template of the first one."""
    folder = tmp_path_factory.mktemp("runs")
    first, later = write_run(folder / "a", "2024010100", kind), write_run(folder / "b", "2024022912", kind)
    GRIBTemplate.learn(first).write(folder / "model.npz")
    return first, later, folder / "model.npz"


def records_of(path, **options):
    """Return what is known of the fields of a file."""
    return Records.from_group(group_of(path, GRIB(**options), is_part=True))


def same_fields(a, b):
    """Compare the fields of two records but for numbers of headers."""
    plain = [name for name in a.fields.dtype.names if name not in ("header", "plain")]
    assert a.fields[plain].tolist() == b.fields[plain].tolist()
    assert [a.headers[i] for i in a.fields["header"]] == [b.headers[i] for i in b.fields["header"]]
    assert [a.digests[i] for i in a.fields["header"]] == [b.digests[i] for i in b.fields["header"]]
    assert a.location == b.location


@pytest.mark.parametrize("keys", [LEVELS, RAIN], ids=["levels", "rain"])
@pytest.mark.filterwarnings("ignore")  # of cfgrib
def test_files_are_as_cfgrib_opens_them(keys, runs):
    _, later, template = runs
    for path in later[1:]:
        vds = vs.open_virtual_dataset(path, reader=GRIB(template=template, filter_by_keys=keys))
        expected = xr.open_dataset(path, engine="cfgrib", filter_by_keys=keys, indexpath="").load()
        xr.testing.assert_equal(vds.virtual.open().load(), expected)
        scanned = vs.open_virtual_dataset(path, reader=GRIB(filter_by_keys=keys))
        xr.testing.assert_identical(vds.virtual.open().load(), scanned.virtual.open().load())


def test_records_are_those_of_a_scan(runs):
    _, later, template = runs
    for path in later:
        same_fields(records_of(path, template=template), records_of(path))


def test_runs_join_add_and_sync(runs, tmp_path):
    """A run is joined, added by update, and placed by a recipe, as scanned ones are."""
    first, later, template = runs
    reader = GRIB(template=template, filter_by_keys=LEVELS)
    every = vs.open_virtual_mfdataset([*first, *later], reader=GRIB(filter_by_keys=LEVELS)).virtual.open().load()
    joined = vs.open_virtual_mfdataset([*first, *later], reader=reader)
    xr.testing.assert_identical(joined.virtual.open().load(), every)
    scanned = GRIB(filter_by_keys=LEVELS, squeeze=False)
    vs.open_virtual_mfdataset(first, reader=scanned).virtual.to_vstack(tmp_path / "a.vstack")
    reader = GRIB(template=template, filter_by_keys=LEVELS, squeeze=False)
    vs.Repository.open(tmp_path / "a.vstack").update(vs.open_virtual_mfdataset(later, reader=reader), dim="time")
    with xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), every)
    options = {"filter_by_keys": LEVELS, "time_dims": ("valid_time",), "squeeze": False, "template": str(template)}
    vs.open_virtual_mfdataset(first, reader=GRIB(**options)).virtual.to_vstack(tmp_path / "b.vstack")
    recipe = vs.Recipe([str(x) for x in later], dim="valid_time", reader={"name": "grib", **options})
    done = vs.Repository.open(tmp_path / "b.vstack").sync(recipe=recipe, sample=4)
    assert (len(done.placed), done.exit_code) == (3, 0)
    with xr.open_dataset(tmp_path / "b.vstack", engine="virtualstack") as found:
        np.testing.assert_array_equal(found["t"][:, -1].values, every["t"][:, 1, 2].values)


def test_leads_are_chosen_though_there_are_others(kind, tmp_path):
    """Leads of one to six hours of overlapping runs are one series, without those of step 0."""
    steps = (0, 3, 6, 9)
    runs = [write_run(tmp_path / x, x, kind, steps=steps, rain=False) for x in ("2024010100", "2024010106")]
    files = [path for run in runs for path in run]
    how = {"time_dims": ("valid_time",), "filter_by_keys": {**LEVELS, "step": range(1, 7)}}
    found = vs.open_virtual_mfdataset(files, reader=GRIB(template=GRIBTemplate.learn(runs[0]), **how))
    assert list(found["valid_time"].dt.hour.values) == [3, 6, 9, 12]
    whole = vs.open_virtual_mfdataset(files, reader=GRIB(filter_by_keys=LEVELS)).virtual.open()
    wanted = [whole["t"][:, run, step] for run in (0, 1) for step in (1, 2)]
    np.testing.assert_array_equal(found.virtual.open()["t"].values, np.stack(wanted, 1))
    with pytest.raises(UnsupportedFeatureError):
        vs.open_virtual_mfdataset(
            files, reader=GRIB(template=GRIBTemplate.learn(runs[0]), time_dims=("time", "dataDate"))
        )


def replaced(path, change):
    """Change the lines of the index of a file."""
    (index,) = [x for x in path.parent.iterdir() if x.name.startswith(path.stem) and x.suffix in KINDS]
    index.write_text("".join(change(index.read_text().splitlines(keepends=True), path)))


def with_names_in_another_order(lines, path):
    """Exchange the names of two messages of the file, which keep their places."""
    if path.with_suffix(".index").exists():
        lines[0], lines[1] = lines[0].replace('"500"', '"850"'), lines[1].replace('"850"', '"500"')
    else:
        lines[0], lines[1] = lines[0].replace("500 mb", "850 mb"), lines[1].replace("850 mb", "500 mb")
    return lines


def of_a_file(name):
    """Put the index of another file in its place."""

    def change(lines, path):
        other = path.parent.parent / name.format(path.parent.name)
        index = next(x for x in other.parent.iterdir() if x.name.startswith(other.stem) and x.suffix in KINDS)
        return index.read_text().splitlines(keepends=True)

    return change


def rewritten(lines, path):
    """Write the file again, with other lengths of messages; the index stays."""
    write_run(path.parent / "new", "2024022918", ".none", steps=(3,))
    shutil.copy(path.parent / "new" / "model.2024022918.f003.grib2", path)
    return lines


def in_another_order(lines, path):
    """Write the messages of the file in another order; the index stays."""
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        n = int.from_bytes(data[at + 8 : at + 16], "big")
        messages.append(data[at : at + n])
        at += n
    write(path, reversed(messages))
    return lines


BAD = {
    "cut": lambda lines, path: lines[:5],
    "cut within a line": lambda lines, path: [*lines[:-1], lines[-1][:30]],
    "of another run": of_a_file("a/model.2024010100.f003.grib2"),
    "of another step": of_a_file("b/model.2024022912.f006.grib2"),
    "beyond the file": lambda lines, path: [*lines[:-1], lines[-1].replace(lines[-1].split(":")[1], "99999999")],
    "a message is missing": lambda lines, path: lines[:3] + lines[4:],
    "a line twice": lambda lines, path: [*lines, lines[2]],
    "other names": with_names_in_another_order,
    "the file was written again": rewritten,
    "the file has another order": in_another_order,
    "empty": lambda lines, path: [],
    "a page": lambda lines, path: ["<html>\n"],
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_index_is_an_error(name, runs, tmp_path):
    """None of them gives other references than a scan."""
    first, later, template = runs
    for run in (first, later):
        shutil.copytree(run[0].parent, tmp_path / run[0].parent.name)
    path = tmp_path / "b" / later[1].name
    if name == "beyond the file" and path.with_suffix(".index").exists():
        replaced(path, lambda lines, path: [*lines[:-1], lines[-1].replace('"_length": ', '"_length": 9')])
    else:
        replaced(path, BAD[name])
    with pytest.raises(TemplateError) as error:
        vs.open_virtual_dataset(path, reader=GRIB(template=template, check_every=1))
    assert error.value.url == path.as_uri()
    assert pickle.loads(pickle.dumps(error.value)).index == error.value.index
    if name in ("cut", "a message is missing"):
        assert error.value.missing
    if name in ("a line twice",):
        assert error.value.unknown


def test_a_last_message_is_always_checked(runs, tmp_path):
    """An index of another run has other reference times, whatever the sample."""
    first, later, template = runs
    for run in (first, later):
        shutil.copytree(run[0].parent, tmp_path / run[0].parent.name)
    path = tmp_path / "b" / later[1].name
    replaced(
        path, lambda lines, path: [x.replace("2024022912", "2024022900").replace('"1200"', '"0000"') for x in lines]
    )
    with pytest.raises(TemplateError) as error:
        vs.open_virtual_dataset(path, reader=GRIB(template=template, check_every=10**6))
    assert error.value.offset is not None


def test_a_changed_product_is_named(kind, runs, tmp_path):
    """A new level is named by its line, and another grid by the place of its message."""
    _, _, template = runs
    more = write_run(tmp_path / "more", "2024030100", kind, levels=(500, 700, 850))
    with pytest.raises(TemplateError) as error:
        vs.open_virtual_dataset(more[0], reader=GRIB(template=template))
    assert len(error.value.unknown) == 6
    assert all("700" in x for x in error.value.unknown)
    finer = write_run(tmp_path / "finer", "2024030100", kind, keys={"Ni": 12, "iDirectionIncrementInDegrees": 5})
    with pytest.raises(TemplateError) as error:
        vs.open_virtual_dataset(finer[0], reader=GRIB(template=template))
    assert error.value.offset is not None
    with pytest.raises(TemplateError) as error:
        GRIBTemplate.learn([*runs[0], *finer])
    assert error.value.unknown
    with pytest.raises(SourceNotFoundError):
        GRIBTemplate.learn([])


def test_fields_of_one_message_and_equal_lines(tmp_path):
    """Where fields of a message end is in its headers; of equal lines, each is the field at its place."""

    def made(date, seed):
        keys = {"dataDate": date, "typeOfLevel": "isobaricInhPa", "level": 500}
        winds = merged(message({**keys, "shortName": x}, seed=seed + i) for i, x in enumerate("uv"))
        twice = [message({**keys, "shortName": "t", "bitsPerValue": n}, seed=seed + n) for n in (9 + seed, 12)]
        path = write(tmp_path / f"{date}.grib2", [winds, *twice])
        index_of(path, ".idx")
        return path

    first, later = made(20240101, 0), made(20240102, 1)
    same_fields(records_of(later, template=GRIBTemplate.learn([first])), records_of(later))


def test_requests(kind, tmp_path):
    """A remote file is opened for its size, and its index is read; messages only of a sample."""
    keys = {"Ni": 200, "Nj": 100, "iDirectionIncrementInDegrees": 0.25, "jDirectionIncrementInDegrees": 0.15}
    (path,) = write_run(tmp_path, "2024010100", kind, steps=(0,), keys=keys)
    template = GRIBTemplate.learn([path])
    with RangeServer(tmp_path) as server:
        url = server.url(path.name)
        local = records_of(path)
        for every in (0, 5):
            server.log.clear()
            found = records_of(url, template=template, check_every=every)
            assert found.fields["offset"].tolist() == local.fields["offset"].tolist()
            assert found.location.size == local.location.size
            asked = [name for _, name, *_ in server.log if name.endswith(".grib2")]
            assert (len(asked) > 1) == (every > 0)
            assert server.bytes_sent < path.stat().st_size / 2


def test_what_is_no_template_or_no_run_to_learn_from(runs, tmp_path):
    first, later, template = runs
    (tmp_path / "not.npz").write_bytes(b"no template")
    (tmp_path / "half.npz").write_bytes(template.read_bytes()[:1000])
    for name in ("not.npz", "half.npz"):
        with pytest.raises(ReaderError):
            GRIB(template=tmp_path / name)
    alone = shutil.copy(first[0], tmp_path)
    with pytest.raises(TemplateError):
        vs.open_virtual_dataset(alone, reader=GRIB(template=template))
    shutil.copytree(later[0].parent, tmp_path / "b")
    replaced(tmp_path / "b" / later[0].name, lambda lines, path: lines[1:])
    with pytest.raises(TemplateError):
        GRIBTemplate.learn([tmp_path / "b" / later[0].name])
    assert GRIB(template=template) == GRIB(template=GRIBTemplate.read(template))
