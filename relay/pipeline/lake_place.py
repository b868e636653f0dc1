"""Where the lake is: its URL, how Arrow reaches it, and errors of files and object stores as one sentence. Travels to Spark's tasks."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltalake.exceptions import DeltaError
from pyarrow import fs

from relay.errors import LakeError, PipelineError, UnreachableError

SCHEMES = ("s3", "s3a", "gs")
_AWAY = r"(?i)error sending request|connection refused|NETWORK_CONNECTION|timed? ?out|dns error|resolve host|INTERNAL_FAILURE|503"
_REFUSED = r"(?i)access ?denied|forbidden|40[13]|InvalidAccessKeyId|SignatureDoesNotMatch|permission|unauthorized"
_HIDDEN = r"(?i)(://)[^/@\s]*@|((?:secret|password|token|signature|credential|access_key)[^=:\s]*\s*[=:]\s*)\S+"


@dataclass(frozen=True)
class Place:
    """Root of the lake (a folder or `scheme://bucket/path`) and the storage options, which no text of this object shows."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str, options: Mapping[str, str]) -> Place:
        """The place of a lake as a user writes it.

        Raises:
            LakeError: no such kind of store, or a secret in the URL.
        """
        parts = urlsplit(url)
        if parts.scheme in {"", "file"}:
            return cls(str(Path(unquote(parts.path) if parts.scheme else url).expanduser().absolute()), dict(options))
        if "@" in parts.netloc:
            raise LakeError("RELAY_LAKE_URL holds a login: put it into RELAY_LAKE_OPTIONS, which is never shown.")
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise LakeError(f"RELAY_LAKE_URL begins with {parts.scheme}://: it must be a folder, s3://bucket/path or gs://bucket/path.")
        return cls(url.rstrip("/").replace("s3a://", "s3://", 1), dict(options))

    @property
    def is_local(self) -> bool:
        """A folder of this machine, or mounted on it."""
        return "://" not in self.url

    def table(self, name: str) -> str:
        """The table's URL for deltalake."""
        return f"{self.url}/{name}"

    def path(self, uri: str) -> str:
        """A URI of this lake as its Arrow file system names it."""
        return uri.partition("://")[2] if "://" in uri else uri

    def filesystem(self) -> fs.FileSystem:
        """Arrow's file system with the same storage options."""
        if self.is_local:
            return fs.LocalFileSystem()
        option = {name.lower().removeprefix("aws_").removeprefix("google_"): value for name, value in self.options.items()}
        return _s3(option) if self.url.startswith("s3://") else _gcs(option)


def _s3(option: Mapping[str, str]) -> fs.FileSystem:
    endpoint = option.get("endpoint_url") or option.get("endpoint")
    insecure = bool(endpoint and endpoint.startswith("http://"))
    given = {
        "access_key": option.get("access_key_id"),
        "secret_key": option.get("secret_access_key"),
        "session_token": option.get("session_token") or option.get("token"),
        "region": option.get("region") or option.get("default_region"),
        "endpoint_override": endpoint.partition("://")[2] if endpoint else None,
        "scheme": "http" if insecure else "https",
        "role_arn": option.get("iam_role_arn"),
    }
    path_style = option.get("virtual_hosted_style_request", "false").lower() != "true"
    return fs.S3FileSystem(
        **{name: value for name, value in given.items() if value},
        force_virtual_addressing=not path_style,
        check_directory_existence_before_creation=False,
    )


def _gcs(option: Mapping[str, str]) -> fs.FileSystem:
    endpoint = option.get("base_url") or option.get("endpoint_url")
    if endpoint:
        return fs.GcsFileSystem(
            anonymous=True, endpoint_override=endpoint.partition("://")[2], scheme="http" if endpoint.startswith("http://") else "https"
        )
    return fs.GcsFileSystem()


@contextmanager
def sentences(place: Place) -> Iterator[None]:
    """Turn errors of files, object stores and the table library into one sentence.

    Raises:
        UnreachableError: the object store does not answer.
        LakeError: anything else.
    """
    try:
        yield
    except (DeltaError, OSError) as error:
        raise sentence(error, place) from error


def sentence(error: Exception, place: Place) -> PipelineError:
    """The error in one sentence with what to do, without what could be a secret."""
    words = _words(error)
    if isinstance(error, OSError) and (known := _of_errno(error.errno, place)):
        return LakeError(f"{known} ({words}).")
    if not place.is_local and re.search(_AWAY, words):
        return UnreachableError(f"The object store of {place.url} does not answer: check that it runs, and the endpoint ({words}).")
    if re.search(_REFUSED, words):
        return LakeError(f"The lake {place.url} refuses access: correct RELAY_LAKE_OPTIONS or the permissions there ({words}).")
    if re.search(r"(?i)no space left|quota", words):
        return LakeError(f"There is no space left for the lake {place.url}: make room and run this again ({words}).")
    return LakeError(f"The lake {place.url} cannot be used: check RELAY_LAKE_URL ({words}).")


def _of_errno(number: int | None, place: Place) -> str | None:
    if number in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return f"There is no space left for the lake {place.url}: make room and run this again"
    if number in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"The lake {place.url} cannot be written or read: give this user the permission"
    return None


def _words(error: Exception) -> str:
    """The library's own words in one line, without what could be a secret."""
    line = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return re.sub(_HIDDEN, lambda found: (found[1] or found[2] or "") + "***", line)[:400]
