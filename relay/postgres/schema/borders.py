"""The roles of an up-to-date schema: what they still need, and which logins reach another outbox too."""

from __future__ import annotations

from relay.postgres.schema.migrate import reading


def check_roles(conninfo: str, *, schema: str = "public", role_prefix: str | None = None) -> str | None:
    """One sentence about what an up-to-date schema still needs before every role can work; None if nothing is missing.

    With `role_prefix`, this also checks that the names of the roles begin with the prefix.

    Raises:
        MigrationError: the schema may not be read.
        StoreError: the database cannot be reached.
    """
    with reading(conninfo, schema, role_prefix) as rows:
        for (other_names,) in rows("role_prefix.sql"):
            return str(other_names)
        found = rows("roles.sql")
        statements = " ".join(statement for (statement,) in rows("role_statements.sql"))
    if statements:
        todo = f"let somebody with CREATEROLE run `{statements}`, then run `relay migrate` again as the owner."
        return f"Roles or their members are missing: {todo}"
    if not found:
        return None
    more = f", and {len(found) - 1} more grants are missing" if len(found) > 1 else ""
    return f"The role {found[0][0]} lacks {found[0][2]}{more}: run `relay migrate` again as the owner."


def crossings(conninfo: str, *, schema: str = "public") -> list[str]:
    """The logins that also reach another outbox, one sentence for each. Changes nothing.

    Raises:
        MigrationError: the schema may not be read.
        StoreError: the database cannot be reached.
    """
    with reading(conninfo, schema) as rows:
        return [sentence for (sentence,) in rows("crossings.sql")]
