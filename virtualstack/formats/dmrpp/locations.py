"""Where the data of a document is, and what a location in a document means."""

from __future__ import annotations

from virtualstack.errors import ReaderError
from virtualstack.location import join_url

__all__ = ["SUFFIX", "data_url", "sidecar_url", "source_url"]

SUFFIX = ".dmrpp"
# what get_dmrpp writes, and servers replace
_PLACEHOLDER = "OPeNDAP_DMRpp_DATA_ACCESS_URL"


def sidecar_url(url: str, /) -> str:
    """Give the URL of the document beside a file.

    >>> sidecar_url("s3://bucket/a.nc"), sidecar_url("https://host/a.nc?token=1")
    ('s3://bucket/a.nc.dmrpp', 'https://host/a.nc.dmrpp?token=1')
    """
    path, query = _split_query(url)
    return f"{path}{SUFFIX}{query}"


def data_url(url: str, /) -> str | None:
    """Give the URL of the file beside a document, or ``None`` where its name does not end in ``.dmrpp``.

    >>> data_url("https://host/a.nc.dmrpp?token=1"), data_url("file:///a.xml")
    ('https://host/a.nc?token=1', None)
    """
    path, query = _split_query(url)
    return path.removesuffix(SUFFIX) + query if path.endswith(SUFFIX) else None


def _split_query(url: str) -> tuple[str, str]:
    if not url.startswith(("http://", "https://")):
        return url, ""  # elsewhere '?' is a letter
    path, mark, query = url.partition("?")
    return path, mark + query


def source_url(href: str, document: str, /) -> str:
    """Give the absolute URL that a location in a document means.

    Parameters
    ----------
    href
        ``dmrpp:href`` of the document, or ``href`` of a chunk; a relative one counts from the document's folder.
    document
        URL of the document.

    Raises
    ------
    ReaderError
        The document does not say where its data is.

    >>> source_url("OPeNDAP_DMRpp_DATA_ACCESS_URL", "s3://bucket/a.nc.dmrpp")
    's3://bucket/a.nc'
    """
    if href in ("", _PLACEHOLDER):
        beside = data_url(document)
        if beside is None:
            raise ReaderError(
                f"'{document}' does not say where its data is, and its name is not that of a file and '{SUFFIX}': "
                "give reader=virtualstack.readers.DMRPP(data_url=...)",
                url=document,
            )
        return beside
    return join_url(_split_query(document)[0].rpartition("/")[0] + "/", href)
