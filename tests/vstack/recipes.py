"""Functions that recipes name."""


def described(dataset):
    """Say of rain where it is from."""
    return dataset.assign(rain=dataset["rain"].assign_attrs({"from": "a gauge"}))
