"""DMR++ documents (OPeNDAP): what is in a file, and where its chunks lie, written down beside it."""
