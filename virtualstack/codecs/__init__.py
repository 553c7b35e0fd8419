"""Bytes become values: codec metadata and the pipeline that decodes."""
