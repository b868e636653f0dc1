-- What a producer may hold up ends: folds, retention and replays go past its open transactions and its temporary objects.

-- Ids under keys stay unseen, also by a function in a query's condition that PostgreSQL would run before the view's own.
ALTER VIEW @schema@.queue_message_keyed SET (security_barrier = true);

-- As before, but only the first id that an open transaction holds is waited for in a fold's transaction: thousands of them would hold up all keys.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_send(place bigint, OUT sent uuid, OUT number bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $body$
#variable_conflict use_variable
DECLARE
    own uuid := (SELECT k.id FROM @schema@.queue_message_keyed_row k WHERE k.seq = place);
    refusal text;
BEGIN
    IF current_setting('relay.fold_waited', true) = 'on' THEN
        PERFORM set_config('lock_timeout', '1ms', true);
    END IF;
    sent := own;
    LOOP
        BEGIN
            INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
                created_at, replay_of)
            SELECT sent, k.exchange, k.routing_key, k.content, k.body, k.options, k.ordering_key, k.available_at, k.expires_at, k.created_at,
                nullif(own, sent)
            FROM @schema@.queue_message_keyed_row k WHERE k.seq = place
            RETURNING queue_message.seq INTO number;
            EXIT;
        EXCEPTION WHEN OTHERS THEN
            refusal := @schema@.queue_message_refusal(SQLSTATE, SQLERRM);
            IF sent = own AND SQLSTATE IN ('23505', '55P03') THEN
                PERFORM set_config('relay.fold_waited', 'on', true) WHERE SQLSTATE = '55P03';
                sent := @schema@.queue_message_uuid();
            ELSIF refusal IS NULL THEN
                RAISE;
            ELSE
                PERFORM @schema@.queue_message_keyed_archive(ARRAY[place], 'rejected', 'refused', refusal, 'fold');
                sent := NULL;
                RETURN;
            END IF;
        END;
    END LOOP;
    IF sent = own THEN
        DELETE FROM @schema@.queue_message_keyed_row k WHERE k.seq = place;
    ELSE
        PERFORM @schema@.queue_message_keyed_archive(ARRAY[place], 'discarded', 'superseded', format('replaced by %s', sent), 'fold');
    END IF;
END
$body$;

-- As before, but a day on which somebody's view, table or function depends is kept, and the others are dropped. Whoever may make temporary objects
-- and use the schema can make one, without a right on the day.
CREATE OR REPLACE FUNCTION @schema@.queue_message_drop_day(day text, exported boolean, OUT action text, OUT messages bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    depends text;
BEGIN
    IF exported AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'Retention with an export must see what was archived last: call queue_message_retain() in a transaction that is READ COMMITTED.'
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    action := 'unverified';
    IF exported AND @schema@.queue_message_verified(day) IS NULL THEN
        RETURN;
    END IF;
    -- From here nothing can be added, so what is counted holds until the drop; readers go on, a second call is busy.
    EXECUTE format('LOCK TABLE %I.%I IN SHARE ROW EXCLUSIVE MODE', @schema_literal@::text, day);
    IF exported THEN
        EXECUTE format('SELECT count(*) FROM %I.%I', @schema_literal@::text, day) INTO messages;
        IF messages IS DISTINCT FROM @schema@.queue_message_verified(day) THEN
            PERFORM @schema@.queue_message_unverify(day);
            RETURN;
        END IF;
    END IF;
    -- The day alone first: a reader of it is waited for while settles go on. DROP then waits only for the parent, and settles for DROP.
    EXECUTE format('LOCK TABLE %I.%I IN ACCESS EXCLUSIVE MODE', @schema_literal@::text, day);
    EXECUTE format('DROP TABLE %I.%I', @schema_literal@::text, day);
    action := 'dropped';
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        action := 'busy';
        messages := NULL;
    WHEN dependent_objects_still_exist THEN
        GET STACKED DIAGNOSTICS depends = PG_EXCEPTION_DETAIL;
        RAISE WARNING 'Retention keeps %: %.', day, rtrim(depends, '.') USING HINT = 'Drop what depends on it, or end the session that made it.';
        action := 'depended on';
        messages := NULL;
END
$body$;
