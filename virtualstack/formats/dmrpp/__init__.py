"""DMR++ documents (OPeNDAP), which describe a file and the byte ranges of its chunks."""
