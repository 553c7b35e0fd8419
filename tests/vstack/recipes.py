"""Functions that recipes name."""

import os
import time


def described(dataset):
    """Say of rain where it is from."""
    return dataset.assign(rain=dataset["rain"].assign_attrs({"from": "a gauge"}))


def odd(file):
    """Return keys that cannot be compared: a number for some files, and text for others."""
    return file.url if file.url.endswith("_again.nc") else 1


def deadly(dataset):
    """End the process that opens a certain file, and stop at another one."""
    name = dataset.encoding["source"].rpartition("/")[2]
    if name == "kill.nc":
        os._exit(9)
    if name == "hang.nc":
        time.sleep(600)
    return dataset
