"""Settings of libaec and szip: what the libraries support, and one step beyond."""

import pytest

from virtualstack.codecs.aec import aec_block_bytes, check_aec, sample_bytes, szip_settings

SZIP = {"options_mask": 4, "pixels_per_block": 16, "bits_per_pixel": 8, "pixels_per_scanline": 64}


@pytest.mark.parametrize(
    ("name", "values", "odd"),
    [
        ("bitspersample", [None, 1, 32], [0, 33, -1]),
        ("flags", [None, 0, 15, 32, 47], [16, 31, 63, 64, -1]),  # 16: the restricted set of code options
        ("blocksize", [None, 8, 16, 32, 64], [0, 7, 9, 24, 128]),
        ("rsi", [None, 1, 4096], [0, 4097]),
    ],
)
def test_settings_of_libaec(name, values, odd):
    """As its libaec.h names them; what is not given has its default."""
    for value in values:
        check_aec({name: value})
    for value in odd:
        with pytest.raises(ValueError, match="libaec does not support such streams"):
            check_aec({name: value})


@pytest.mark.parametrize(
    ("name", "values", "odd"),
    [
        ("options_mask", [0, 4, (1 << 16) - 1], [-1, 1 << 16]),
        ("pixels_per_block", [2, 8, 32], [0, 1, 3, 31, 33, 34]),
        ("bits_per_pixel", [1, 24, 32, 64], [0, 33, 63, 65]),
        ("pixels_per_scanline", [1, 16 * 128], [0, 16 * 128 + 1]),
    ],
)
def test_settings_of_szip(name, values, odd):
    """As szlib.h names them: even blocks of up to 32 pixels, and lines of up to 128 blocks."""
    for value in values:
        assert szip_settings({**SZIP, name: value}) == {**SZIP, name: value}
    for value in odd:
        with pytest.raises(ValueError, match="which szip does not support"):
            szip_settings({**SZIP, name: value})
    with pytest.raises(KeyError, match=name):
        szip_settings({key: value for key, value in SZIP.items() if key != name})


def test_samples_take_whole_bytes():
    """A sample of up to 32 bits takes 1, 2 or 4 bytes; a block is of 8 samples of 8 bits if nothing else is given."""
    assert [sample_bytes(bits) for bits in (1, 8, 9, 16, 17, 32)] == [1, 1, 2, 2, 4, 4]
    assert [aec_block_bytes(x) for x in ({}, {"blocksize": 64}, {"bitspersample": 17})] == [8, 64, 32]
