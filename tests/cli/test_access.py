"""``--storage``, ``--endpoint``, ``--anonymous`` and ``--profile``: access to buckets from the command line."""

import io
import json
from pathlib import Path

import pytest
import xarray as xr

from virtualstack.cli.command import main
from virtualstack.cli.group import cli

FILES = ["a.nc", "b.nc"]


@pytest.fixture
def bucket(tmp_path, monkeypatch, s3_server):
    """Two files in a bucket of a server of our own, and no credentials in the environment."""
    monkeypatch.chdir(tmp_path)
    for day, name in enumerate(FILES):
        xr.Dataset({"t": ("time", [1.0 + day])}, {"time": [day]}).to_netcdf(
            name, engine="h5netcdf", unlimited_dims="time"
        )
        s3_server.put(f"access/{name}", (tmp_path / name).read_bytes())
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    return s3_server


def options(server):
    return json.dumps({"s3://bucket/": {**server.options, "endpoint": server.endpoint}})


def test_options_by_prefix_are_json(bucket, capsys):
    """They reach the sources, the target and its log."""
    given = ["--storage", options(bucket)]
    assert main(["build", "s3://bucket/access/*.nc", "-o", "s3://bucket/access/cube.vstack", "--verify", *given]) == 0
    assert "verified: 2 variables equal in 2 files" in capsys.readouterr().out
    for command in (
        ["log", "s3://bucket/access/cube.vstack"],
        ["verify", "s3://bucket/access/cube.vstack", "--sample", "100%"],
        ["inspect", "s3://bucket/access/a.nc", "s3://bucket/access/cube.vstack"],
        ["survey", "s3://bucket/access/*.nc"],
        ["convert", "s3://bucket/access/cube.vstack", "refs.json"],
        ["write", "s3://bucket/access/cube.vstack", "t", "5", "--region", "time=0"],
        ["refresh", "s3://bucket/access/cube.vstack"],
        ["report", "s3://bucket/access/cube.vstack", "-o", "cube.html"],
    ):
        assert main([*command, *given]) == 0, capsys.readouterr().err


def test_short_options_are_for_the_buckets_that_are_named(bucket, capsys, monkeypatch):
    """With keys from the environment, the endpoint is all that is missing."""
    for name in ("access_key_id", "secret_access_key"):
        monkeypatch.setenv(f"AWS_{name.upper()}", bucket.options[name])
    assert main(["inspect", "s3://bucket/access/*.nc", "--endpoint", bucket.endpoint]) == 0
    assert "s3://bucket/access/b.nc" in capsys.readouterr().out


@pytest.mark.parametrize(("store", "new"), [("refs/a.vstack", "../old"), ("old/a.vstack", "..")])
def test_relocate_to_a_folder_beside_a_store_in_a_bucket(store, new, bucket, capsys):
    """``..`` is the folder that contains the store; a folder without files is an error, and names the right URL."""
    given = ["--storage", options(bucket)]
    store = f"s3://bucket/access/{store}"
    assert main(["build", "s3://bucket/access/*.nc", "-o", store, *given]) == 0
    capsys.readouterr()
    if new == "../old":
        assert main(["relocate", store, "s3://bucket/access/", new, *given]) == 1
        assert "no file in the new folder 's3://bucket/access/refs/old'" in capsys.readouterr().err
    folder = {"../old": "access/refs/old", "..": "access/old"}[new]
    for name in FILES:
        bucket.put(f"{folder}/{name}", Path(name).read_bytes())
    assert main(["relocate", store, "s3://bucket/access/", new, *given]) == 0
    capsys.readouterr()
    assert main(["inspect", store, "--json", *given]) == 0
    sources = {each["url"] for each in json.loads(capsys.readouterr().out)["files"][0]["sources"]}
    assert {f"s3://bucket/{folder}/{name}" for name in FILES} <= sources


def test_a_profile_is_used(bucket, capsys, monkeypatch, tmp_path):
    """That of the file of AWS."""
    lines = [f"aws_{name} = {bucket.options[name]}" for name in ("access_key_id", "secret_access_key")]
    (tmp_path / "credentials").write_text("\n".join(["[research]", *lines]))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    command = ["inspect", "s3://bucket/access/a.nc", "--endpoint", bucket.endpoint]
    assert main([*command, "--profile", "research"]) == 0
    assert main([*command, "--profile", "other"]) == 1
    assert "'other'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--anonymous"], {"s3://one/": {"anonymous": True}, "s3://two/": {"anonymous": True}}),
        (
            ["--endpoint", "https://host"],
            {"s3://one/": {"endpoint": "https://host"}, "s3://two/": {"endpoint": "https://host"}},
        ),
        (
            ["--profile", "p", "--storage", '{"s3://one/": {"region": "r"}}'],
            {"s3://one/": {"region": "r", "profile": "p"}, "s3://two/": {"profile": "p"}},
        ),
        (["--storage", "earthdata"], "earthdata"),
        ([], None),
    ],
)
def test_what_the_command_gets(arguments, found, monkeypatch):
    """Options for the buckets of files and of the output; other URLs get none."""
    seen = []
    monkeypatch.setattr("virtualstack.cli.building.run", lambda options: seen.append(options.storage) or 0)
    files = ["s3://one/2020/**/*.nc", "https://host/a.nc", "local.nc"]
    assert main(["build", *files, "-o", "s3://two/cube.vstack", *arguments]) == 0
    assert seen == [found]


def test_short_options_are_for_the_buckets_of_lists(tmp_path, monkeypatch):
    """A list on stdin is read once."""
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(
        "virtualstack.cli.building.run", lambda options: seen.append((options.files, options.storage)) or 0
    )
    Path("urls.txt").write_text("s3://one/a.nc\ns3://two/b.nc\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("s3://three/c.nc\n"))
    assert main(["build", "@urls.txt", "@-", "-o", "cube.vstack", "--anonymous"]) == 0
    assert seen == [
        (
            ("s3://one/a.nc", "s3://two/b.nc", "s3://three/c.nc"),
            {f"s3://{name}/": {"anonymous": True} for name in ("one", "two", "three")},
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.nc", "--profile", "p"], "--profile is for buckets on the command line, which has none"),
        (["s3://b/a.nc", "--storage", "earthdata", "--anonymous"], "--storage earthdata has no --anonymous"),
        (["s3://b/a.nc", "--storage", "earthdat"], "'earthdat' is neither earthdata nor planetary_computer"),
        (["s3://b/a.nc", "--storage", '{"bucket": {}}'], "this is no JSON object such as"),
        (["s3://b/a.nc", "--storage", '{"s3://b/": {"secret_access_key": "hidden"'], "this is no JSON object such as"),
    ],
)
def test_wrong_options_are_wrong_usage(arguments, message, capsys):
    """Values are not shown, as they may be secrets."""
    assert main(["inspect", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "hidden" not in said


def test_every_command_that_opens_something_has_the_options():
    """Others only show what is on this machine."""
    names = {"storage", "endpoint", "anonymous", "profile"}
    without = {name for name, command in cli.commands.items() if not names <= {x.name for x in command.params}}
    assert without == {"readers", "sample", "config", "completion"}
