"""netCDF-3: the classic format, its 64-bit offset and its 64-bit data variants, by a parser of its own."""
