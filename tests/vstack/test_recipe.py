"""Recipes: what their text holds, and what is refused."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import CombineError, RecipeError
from virtualstack.vstack.recipe import drafted, found_new_dim, found_prefer, kept


@pytest.mark.parametrize(
    "valid",
    [
        {"time": [0, math.inf]},
        {"time": [-math.inf, 1e22]},
        {"time": [np.int64(0), np.float32(0.5)]},
        {"time": (1e-7, 5)},
        {'a \x7f\n"b😀': ["\x00", "\\\x7f😀\u2028"]},
    ],
)
def test_the_text_of_a_recipe_holds_what_was_given(valid):
    recipe = vs.Recipe(["d😀/a*.nc", 'c\x7f".nc'], valid=valid, settle=1e-3)
    for text in (recipe.text, kept(recipe).text):
        again = vs.Recipe.from_toml(text)
        assert again.valid == {name: list(pair) for name, pair in valid.items()}
        assert again.settle == 1e-3
    assert vs.Recipe.from_toml(recipe.text).files == recipe.files
    assert "😀/a*.nc" in kept(vs.Recipe.from_toml('files = "d😀/a*.nc" # all')).text


def test_dates_become_text():
    recipe = vs.Recipe(["*.nc"], valid={"time": [np.datetime64("2000-01-01"), pd.Timestamp("2100-01-01")]})
    assert vs.Recipe.from_toml(recipe.text).valid == {"time": ["2000-01-01", "2100-01-01 00:00:00"]}


@pytest.mark.parametrize("given", [{"valid": {"time": [0, None]}}, {"reader": {"name": "hdf5", "x": object()}}])
def test_what_toml_cannot_hold_is_refused(given):
    with pytest.raises(RecipeError, match=f"'{next(iter(given))}' of the recipe is .*, which TOML cannot hold"):
        vs.Recipe(["*.nc"], **given)
    with pytest.raises(RecipeError, match=r"'files' of the recipe is .*TOML"):
        vs.Recipe(["\udcff.nc"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('inline_limit = "abc"', "'inline_limit' of the recipe, in line 2, is not valid: .*'abc'.*1 MiB"),
        ("inline_limit = [1]", "'inline_limit' of the recipe, in line 2, is not valid"),
        ('tolerance = "abc"', "'tolerance' of the recipe, in line 2, is 'abc'; it must be a number"),
        ("tolerance = -1", "'tolerance' of the recipe, in line 2, is -1"),
        ('combine_options = {compat = "zz"}', "'combine_options' of the recipe, in line 2, .*compat='zz'.*'equals'"),
        ('combine_options = {coords = "all"}', "'combine_options' of the recipe, in line 2, .*known ones are"),
        ("combine_options = 1", "'combine_options' of the recipe, in line 2"),
        (
            'dimm = "time"',
            r"'dimm' of the recipe, in line 2, is not known. Did you mean 'dim'\? docs/reference/recipe.md",
        ),
        ('duplicates = "last"', r"is not known. Did you mean 'prefer'\?"),
        ('compat = "equals"', r"is not known. Did you mean 'combine_options'\?"),
    ],
)
def test_mistakes_name_their_line(line, message):
    with pytest.raises(RecipeError, match=message):
        vs.Recipe.from_toml(f'files = ["*.nc"]\n{line}')


def test_new_dimension_that_is_no_expression():
    recipe = vs.Recipe.from_toml('files = ["*.nc"]\nnew_dim.run = {name = "x("}')
    with pytest.raises(RecipeError, match=r"'run' of the recipe, in line 2, is not valid: FromName\('x\('\) is not a "):
        found_new_dim(recipe)


def test_functions_that_prefer_may_fail():
    prefer = found_prefer(vs.Recipe(["*.nc"], prefer="time:sleep"))
    with pytest.raises(CombineError, match=r"prefer= raised TypeError for 'a.nc'"):
        prefer(SimpleNamespace(url="a.nc"))


def test_drafts_have_whole_years():
    table = pd.DataFrame({"first": ["1990.0", "2000"], "last": ["1999", "2009.5"]})
    survey = SimpleNamespace(table=table, duplicates=[], dim="year", plan=(), text=lambda most_lines: "")
    assert "# valid.year = [1990, 2009.5]" in drafted(survey, ["*.nc"])


def test_a_draft_for_members_takes_them_one_by_one(tmp_path):
    """Files on a grid of members and times need not come together."""

    def write(member, time):
        data = xr.Dataset({"tas": ("time", [10.0 * member + time])}, {"time": [time]}, {"variant_label": f"r{member}"})
        data.to_netcdf(tmp_path / f"tas_r{member}_{time}.nc", engine="netcdf4")

    for member, time in itertools.product((1, 2), (0, 1)):
        write(member, time)
    pattern = str(tmp_path / "*.nc")
    recipe = vs.Recipe.from_toml(drafted(vs.survey(pattern), [pattern]))
    repo = vs.Repository.build(tmp_path / "a.vstack", recipe).repository
    write(1, 2)
    night = repo.sync()
    assert (len(night.placed), night.quarantined) == (1, ())
    found = night.repository.open_dataset()
    np.testing.assert_array_equal(found["tas"].transpose("variant_label", "time"), [[10, 11, 12], [20, 21, np.nan]])
