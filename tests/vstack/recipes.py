"""Functions that recipes name."""


def described(dataset):
    """Say of rain where it is from."""
    return dataset.assign(rain=dataset["rain"].assign_attrs({"from": "a gauge"}))


def odd(file):
    """Return keys that cannot be compared: a number for some files, and text for others."""
    return file.url if file.url.endswith("_again.nc") else 1
