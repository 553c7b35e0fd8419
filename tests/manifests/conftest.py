import pytest


@pytest.fixture
def large(monkeypatch):
    """All arrays are too large for their values to be read when they are needed."""
    monkeypatch.setattr("virtualstack.manifests.values.MAX_VALUES_BYTES", -1)
