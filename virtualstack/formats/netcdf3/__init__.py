"""netCDF-3: a parser of the classic format and its variants with 64-bit offsets and 64-bit data."""
