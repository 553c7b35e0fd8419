"""Standing storage options from the configuration file."""

import pytest
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.cli.command import main
from virtualstack.errors import StorageError
from virtualstack.storage import Storage


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write the configuration file."""

    def write(text):
        path = tmp_path / f"config{len(list(tmp_path.glob('*.toml')))}.toml"
        path.write_text(text)
        monkeypatch.setenv("VIRTUALSTACK_CONFIG", str(path))
        return path

    return write


def test_standing_options_serve_every_call_and_yield_to_those_of_a_call(config):
    config('[storage."s3://b/"]\nregion = "eu-west-1"\n[storage."s3://b/deep"]\nregion = "us-east-1"\n')
    assert Storage.from_option().find("s3://b/x")[1] == {"region": "eu-west-1"}
    assert Storage.from_option().find("s3://b/deep/x")[1] == {"region": "us-east-1"}
    assert Storage.from_option().find("s3://c/x")[1] is None
    assert Storage.from_option({"s3://b": {"region": "own"}}).find("s3://b/deep/x")[1] == {"region": "own"}


def test_a_file_is_read_as_the_user_of_the_configuration_file(config, tmp_path):
    xr.Dataset({"rain": ("time", [1.0])}, {"time": [0]}).to_netcdf(tmp_path / "day.nc", engine="netcdf4")
    with RangeServer(tmp_path, mode="refuse_anonymous") as server:
        with pytest.raises(StorageError):
            vs.open_virtual_dataset(server.url("day.nc"))
        config(f'[storage."{server.root}".headers]\nAuthorization = "Bearer letmein"\n')
        assert vs.open_virtual_dataset(server.url("day.nc")).virtual.open()["rain"].values == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[storage", "is not TOML"),
        ("[storages]", "has 'storages'"),
        ('[storage]\nregion = "eu"', "no options by URL prefix at 'storage.region'"),
        ("storage = 1", "no options by URL prefix"),
    ],
)
def test_a_wrong_configuration_file_is_an_error_that_names_it(config, text, message):
    path = config(text)
    with pytest.raises(StorageError, match=message) as caught:
        Storage.from_option().find("s3://b/x")
    assert str(path) in str(caught.value)


def test_the_command_shows_names_of_options_and_no_secrets(config, capsys):
    path = config('[storage."s3://b/"]\nsecret_access_key = "hidden"\n')
    assert main(["config"]) == 0
    text = capsys.readouterr().out
    assert str(path) in text
    assert "s3://b/" in text
    assert "secret_access_key" in text
    assert "hidden" not in text


def test_the_command_says_that_there_is_no_file(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("VIRTUALSTACK_CONFIG", str(tmp_path / "none.toml"))
    assert main(["config"]) == 0
    assert "does not exist" in capsys.readouterr().out
