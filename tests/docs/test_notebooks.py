"""Notebooks of the site. Its build runs them; here each runs by itself, and without the packages of the site."""

import re

import numpy as np
import pytest
import xarray as xr

from tests.docs.page import ROOT

NOTEBOOKS = sorted(x for x in (ROOT / "docs" / "notebooks").glob("*.md") if x.name != "index.md")
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_index_lists_the_notebooks():
    """Ten of them, each with a sentence."""
    listed = re.findall(r"^- \[[^\]]+\]\(([\w-]+\.md)\): .+\.$", (ROOT / "docs/notebooks/index.md").read_text(), re.M)
    assert sorted(listed) == [path.name for path in NOTEBOOKS]
    assert len(listed) >= 10


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_complete(path):
    """It says who it is for, draws, compares with another library, says what was gained, and leads to the guides."""
    text = path.read_text()
    code = "\n".join(_CELL.findall(text))
    assert re.search(r"^# .+\n\nThis notebook is for people .+\.$", text, re.MULTILINE)
    assert "plot" in code
    assert re.search(r"^## Compare with |xr\.testing\.assert", text, re.MULTILINE)
    assert "assert" in code
    gained = text.partition("\n## What was gained\n")[2]
    assert "print(" in gained
    assert "](../how-to/" in gained
    assert max(map(len, code.splitlines())) <= 88, "the page would be scrolled"
    compile(code.replace("await ", ""), str(path), "exec")


@pytest.mark.apart
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    """In a new kernel and an empty folder, without warnings, and without paths of the machine in its output."""
    nbformat = pytest.importorskip("nbformat", reason="notebooks need ipykernel and nbclient")
    nbclient = pytest.importorskip("nbclient", reason="notebooks need ipykernel and nbclient")
    cells = [nbformat.v4.new_code_cell(code) for code in _CELL.findall(path.read_text())]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs)
    shown = [output.data.get("text/html") or output.data.get("text/plain") for output in outputs if "data" in output]
    assert not [text for text in shown if text and str(tmp_path) in text]


@pytest.mark.apart
def test_the_loader_of_torch_reads_each_pair_of_days(tmp_path, monkeypatch):
    """In worker processes, each once, with the values that the netCDF library reads."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    text = next(path for path in NOTEBOOKS if path.stem == "train-from-it").read_text()
    cells, (lines,) = (
        _CELL.findall(text),
        re.findall(r"^```python\n(from torch\..*?)^```$", text, re.MULTILINE | re.DOTALL),
    )
    namespace = {"__name__": "__main__"}
    for code in [*(code for code in cells[: _number_of(cells, "class Days:") + 1]), lines]:
        exec(compile(code, "train-from-it.md", "exec"), namespace)
    with xr.open_mfdataset(namespace["files"], engine="h5netcdf") as truth:
        days = truth["t2m"].values.astype("f4")
    number = {day.tobytes(): i for i, day in enumerate(days)}
    seen = []
    for batch in namespace["loader"]:
        first, second = ([number[np.ascontiguousarray(day).tobytes()] for day in each.numpy()] for each in batch)
        assert [i + 1 for i in first] == second
        seen += first
    assert sorted(seen) == list(range(273))


def _number_of(cells, begin):
    return next(i for i, code in enumerate(cells) if code.startswith(begin))
