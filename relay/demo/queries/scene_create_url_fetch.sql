CREATE TABLE url_fetch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    url text NOT NULL,
    response_at timestamptz,
    response_code integer,
    response_body bytea,
    error text
)
