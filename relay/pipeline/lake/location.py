"""Where the lake is: its URL, and how Arrow reaches it. The object is sent to Spark's tasks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from pyarrow import fs

from relay.errors import LakeError

LAKE_SETTING = "RELAY_LAKE_URL"
SCHEMES = ("s3", "s3a", "gs")
_UNFIT = r"[\x00-\x1f\x7f\ud800-\udfff\\\[\]^|]|%[0-9A-Fa-f]{2}"
"""Characters of a path that the table library misreads, or that make it end the process."""
_UNFIT_IN_STORE = _UNFIT + r"|[#?]|//|(?<=/)\.{1,2}(?=/|$)"
"""The same for an object store.

The library cuts a store's path off at some characters. Names such as `..` mean a folder only on a disk.
"""


@dataclass(frozen=True)
class LakeLocation:
    """Root of the lake (a folder or `scheme://bucket/path`) and the storage options, which `repr` leaves out.

    `setting` is the setting or option by which a user names the place. For files that do not belong to the lake it is not RELAY_LAKE_URL.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    setting: str = LAKE_SETTING

    @classmethod
    def of(cls, url: str, options: Mapping[str, str]) -> LakeLocation:
        """The place of a lake, from the URL and the options that a user gives.

        Raises:
            LakeError: the kind of store is unknown, the URL contains a login, or an endpoint is not a URL.
        """
        parts = _split(url)
        if parts.scheme == "file" and parts.netloc not in {"", "localhost"}:
            raise LakeError("RELAY_LAKE_URL names a host after file://: write file:///folder, or the folder alone.")
        if parts.scheme in {"", "file"}:
            return cls(str(Path(unquote(parts.path) if parts.scheme else url).expanduser().absolute()), dict(options))
        if "@" in parts.netloc:
            raise LakeError("RELAY_LAKE_URL holds a login: put it into RELAY_LAKE_OPTIONS, which is never shown.")
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise LakeError(f"RELAY_LAKE_URL begins with {parts.scheme}://: it must be a folder, s3://bucket/path or gs://bucket/path.")
        _check_endpoint(options)
        return cls(url.rstrip("/").replace("s3a://", "s3://", 1), dict(options))

    def check_tables(self) -> None:
        """Raise LakeError if tables or some of their files could not be stored at this place, or would be stored at another place."""
        path = self.url if self.is_local else self.path(self.url)
        if found := re.search(_UNFIT if self.is_local else _UNFIT_IN_STORE, path):
            raise LakeError(f"The path in RELAY_LAKE_URL holds {found[0]!r}, which a table's path cannot hold: name another folder.")
        if self.is_local and (there := _no_folder(Path(path))):
            raise LakeError(f"RELAY_LAKE_URL leads to {there}, which is a file and no folder: name a folder.")

    @property
    def name(self) -> str:
        """The name of the place in error messages."""
        return f"the lake {self.url}" if self.setting == LAKE_SETTING else self.url

    @property
    def is_local(self) -> bool:
        """Whether the place is a folder of this machine, local or mounted."""
        return "://" not in self.url

    def table(self, name: str) -> str:
        """The table's URL for deltalake."""
        return f"{self.url}/{name}"

    def path(self, uri: str) -> str:
        """The path that the Arrow file system has for a URI of this lake."""
        return uri.partition("://")[2] if "://" in uri else uri

    def filesystem(self) -> fs.FileSystem:
        """Arrow's file system with the same storage options."""
        if self.is_local:
            return fs.LocalFileSystem()
        option = {_plain(name): value for name, value in self.options.items()}
        return _s3(option) if self.url.startswith("s3://") else _gcs(option)


def _no_folder(path: Path) -> Path | None:
    """The path or its nearest existing parent, if that is not a folder; else None, because missing folders can be created."""
    there = next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110 - Path.exists raises without permission
    return None if there.is_dir() else there


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise LakeError(f"RELAY_LAKE_URL is no URL ({error}): it must be a folder, s3://bucket/path or gs://bucket/path.") from error


def _plain(name: str) -> str:
    """An option's name in lower case without its store's prefix, which a user may leave out."""
    return name.lower().removeprefix("aws_").removeprefix("google_")


def _check_endpoint(options: Mapping[str, str]) -> None:
    """Raise LakeError if an endpoint is not a URL: the table library would panic, and print lines of its own."""
    for name, value in options.items():
        if _plain(name) in {"endpoint", "endpoint_url", "base_url"} and not _is_endpoint(value):
            raise LakeError(f"{name} in RELAY_LAKE_OPTIONS is no endpoint: write it like https://host or http://host:9000.")


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


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
