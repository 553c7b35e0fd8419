"""Functions that open one source, or many as one, as a virtual dataset or tree."""
