"""Standing storage options from the configuration file and the environment."""

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


def test_options_in_the_environment_take_precedence_over_the_file_prefix_by_prefix(config, monkeypatch):
    config('[storage."s3://b/"]\nregion = "eu-west-1"\n[storage."s3://c/"]\nregion = "us-east-1"\n')
    monkeypatch.setenv("VIRTUALSTACK_STORAGE", '{"s3://b/": {"anonymous": true}}')
    storage = Storage.from_option()
    assert storage.find("s3://b/x") == ("s3://b/", {"anonymous": True})
    assert storage.find("s3://c/x") == ("s3://c/", {"region": "us-east-1"})
    monkeypatch.delenv("VIRTUALSTACK_STORAGE")
    assert storage.find("s3://b/x") == ("s3://b/", {"region": "eu-west-1"})


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"s3://b/": 1}', '{"b": {}}', "[" * 100_000])
def test_wrong_options_in_the_environment_are_an_error_that_shows_no_secrets(monkeypatch, text):
    monkeypatch.setenv("VIRTUALSTACK_STORAGE", text)
    with pytest.raises(StorageError, match="VIRTUALSTACK_STORAGE has no options by URL prefix") as caught:
        Storage.from_option().find("s3://b/x")
    assert len(str(caught.value)) < 300


def test_the_command_lists_the_credentials_that_are_tried_at_a_url(monkeypatch, capsys):
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "hidden1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden2")
    monkeypatch.setenv("VIRTUALSTACK_STORAGE", '{"s3://open/": {"anonymous": true}, "s3://own/": {"token": "hidden3"}}')
    assert main(["config", "s3://other/a.nc", "s3://open/", "s3://own/", "/data/a.nc"]) == 0
    text = capsys.readouterr().out
    of_bucket = [part.split("\n") for part in text.split("credentials for ")[1:]]
    assert "hidden" not in text
    assert "AWS_ACCESS_KEY_ID" in of_bucket[0][1]
    assert of_bucket[0][2].strip() == "anonymous"
    assert [line.strip() for line in of_bucket[1][1:] if line] == ["anonymous"]
    assert [line.strip() for line in of_bucket[2][1:] if line] == ["the credentials in storage="]
    assert of_bucket[3][0] == "/data/a.nc: none"
