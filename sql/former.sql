-- Runs after the commit, each time, in a transaction of its own: takes from roles of earlier prefixes what they have here, once their
-- members are members of today's roles. A session reads the changes of one commit piece by piece. In the commit that grants, it could read
-- that the former role lost a function before it reads its login's new role. Its statement would be refused.
SET LOCAL search_path = pg_catalog, pg_temp;
@unlimited@SET LOCAL lock_timeout = '10min';
LOCK TABLE @schema@.queue_message_migration IN SHARE ROW EXCLUSIVE MODE;
DO $do$
DECLARE
    found record;
BEGIN
    IF EXISTS (SELECT FROM @schema@.queue_message_role_statements()) THEN
        RETURN;
    END IF;
    FOR found IN SELECT * FROM @schema@.queue_message_former_grants() LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %I', found.place, found.object, found.former);
    END LOOP;
END
$do$;
