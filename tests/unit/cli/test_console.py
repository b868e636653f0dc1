"""An operator's connection where no server is needed."""

from __future__ import annotations

import pytest

from relay.errors import StoreError
from relay.postgres.operator_session import OperatorSession


@pytest.mark.parametrize("conninfo", ["postgresql://relay:hunter2@[::1", "host=127.0.0.1 port=1 password=hunter2", "password='hunter2 x"])
def test_a_connection_string_is_never_repeated_with_its_password(conninfo: str) -> None:
    """The driver quotes a URL that it cannot read, password and all."""
    with pytest.raises(StoreError, match="RELAY_DATABASE_URL") as caught, OperatorSession(conninfo, schema="public"):
        pass

    assert "hunter2" not in str(caught.value)
