"""Operators and functions in a schema of somebody else's that fit better than PostgreSQL's own, in whatever place on the path."""

from __future__ import annotations

OPERATORS = """
    CREATE SCHEMA decoys;
    GRANT USAGE ON SCHEMA decoys TO PUBLIC;
    DO $body$ DECLARE
        types regtype[] := '{jsonb,text,bytea,integer,bigint,numeric,boolean,timestamptz,interval,float8,uuid,xid8,text[],bigint[]}';
        l regtype; r regtype; found record;
    BEGIN
        FOREACH l IN ARRAY types LOOP FOREACH r IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION decoys.called(a %s, b %s) RETURNS text LANGUAGE plpgsql AS '
                '$$BEGIN RAISE ''a decoy was called''; END$$', l, r);
            FOR found IN SELECT DISTINCT o.oprname AS name FROM pg_operator o WHERE o.oprkind = 'b' AND o.oprname <> '~~~' AND NOT EXISTS (
                SELECT FROM pg_operator p WHERE (p.oprname, p.oprleft, p.oprright) = (o.oprname, l, r)) LOOP
                EXECUTE format('CREATE OPERATOR decoys.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = decoys.called)', found.name, l, r);
            END LOOP;
        END LOOP; END LOOP;
    END $body$;
"""
"""One of each name for each two types, where PostgreSQL has none: it fits a literal, or a number in a sentence, best."""
FUNCTIONS = """
    DO $body$ DECLARE
        found record;
    BEGIN
        FOR found IN SELECT DISTINCT p.proname AS name, given FROM pg_proc p
                CROSS JOIN unnest('{jsonb,text,bytea,integer,bigint,numeric,boolean,timestamptz,interval,uuid,text[]}'::regtype[]) AS given
            WHERE p.pronargs = 1 AND p.prokind = 'f' AND p.pronamespace = 'pg_catalog'::regnamespace AND NOT starts_with(p.proname, 'pg_')
            AND NOT EXISTS (SELECT FROM pg_proc q WHERE q.proname = p.proname AND q.pronargs = 1 AND q.proargtypes[0] = given) LOOP
            EXECUTE format('CREATE FUNCTION decoys.%I(a %s) RETURNS boolean LANGUAGE plpgsql AS '
                '$$BEGIN RAISE ''a decoy was called''; END$$', found.name, found.given);
        END LOOP;
    END $body$;
"""
"""Functions of one argument, to be made after the operators."""
SAME_OPERATORS = """
    CREATE SCHEMA decoys;
    GRANT USAGE ON SCHEMA decoys TO PUBLIC;
    DO $body$ DECLARE
        found record;
    BEGIN
        FOR found IN SELECT DISTINCT o.oprname AS name, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r
            FROM pg_operator o JOIN pg_type a ON a.oid = o.oprleft JOIN pg_type b ON b.oid = o.oprright
            WHERE o.oprkind = 'b' AND a.typtype = 'b' AND b.typtype = 'b' AND o.oprnamespace = 'pg_catalog'::regnamespace LOOP
            EXECUTE format('CREATE OR REPLACE FUNCTION decoys.called(a %s, b %s) RETURNS boolean LANGUAGE plpgsql AS '
                '$$BEGIN RAISE ''a decoy was called''; END$$', found.l, found.r);
            EXECUTE format('CREATE OPERATOR decoys.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = decoys.called)',
                found.name, found.l, found.r);
        END LOOP;
    END $body$;
"""
"""Each operator of PostgreSQL's for two arguments, for the same types: before `pg_catalog` on the path, it takes the place of that one."""
