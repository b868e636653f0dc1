-- Logins that own nothing, for the relay and for the dashboard, where their passwords are given. The owner runs `relay migrate`, which
-- grants these roles what they need and makes the others (queue_message_producer for applications, queue_message_etl for exports).
\getenv relay_password RELAY_LOGIN_PASSWORD
\getenv grafana_password GRAFANA_LOGIN_PASSWORD

\if :{?relay_password}
    CREATE ROLE queue_message_relay NOLOGIN;
    CREATE ROLE relay LOGIN PASSWORD :'relay_password' IN ROLE queue_message_relay;
\endif

\if :{?grafana_password}
    CREATE ROLE queue_message_operator NOLOGIN;
    CREATE ROLE grafana LOGIN PASSWORD :'grafana_password' IN ROLE queue_message_operator;
    ALTER ROLE grafana SET default_transaction_read_only = on;
    ALTER ROLE grafana SET statement_timeout = '5s';
\endif
