"""Serve cubes over HTTP as zarr: ``virtualstack serve``, and :func:`app` for any ASGI server."""

from virtualstack.serve.app import app

__all__ = ["app"]
