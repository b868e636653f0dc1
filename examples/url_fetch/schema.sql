-- For an inbox in the schema `inbox`, as README.md makes it.
CREATE TABLE url_fetch (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    url           text NOT NULL,
    response_at   timestamptz,
    response_code integer,
    response_body bytea,
    response_cut  boolean,
    error         text
);
SELECT inbox.queue_message_request('url_fetch', answers => '{response_at,response_code,response_body,response_cut}', error => 'error');
