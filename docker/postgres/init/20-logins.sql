-- Logins that own nothing, where their passwords are given: for the relay, for the people at the command line, and for the dashboard.
-- The relay's also sees how old other sessions' transactions are, for the metric and its alert. The owner runs `relay migrate`, which grants
-- the roles what they need, under these names where RELAY_ROLE_PREFIX=queue_message. An application's login gets queue_message_producer alone.
\getenv relay_password RELAY_LOGIN_PASSWORD
\getenv operator_password OPERATOR_LOGIN_PASSWORD
\getenv grafana_password GRAFANA_LOGIN_PASSWORD

CREATE ROLE queue_message_relay NOLOGIN;
CREATE ROLE queue_message_operator NOLOGIN;
CREATE ROLE queue_message_producer NOLOGIN;

\if :{?relay_password}
    CREATE ROLE relay LOGIN PASSWORD :'relay_password' IN ROLE queue_message_relay, pg_read_all_stats;
\endif

\if :{?operator_password}
    CREATE ROLE operator LOGIN PASSWORD :'operator_password' IN ROLE queue_message_operator, queue_message_producer;
\endif

\if :{?grafana_password}
    CREATE ROLE grafana LOGIN PASSWORD :'grafana_password' IN ROLE queue_message_operator;
    ALTER ROLE grafana SET default_transaction_read_only = on;
    ALTER ROLE grafana SET statement_timeout = '5s';
\endif
