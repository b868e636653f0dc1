CREATE TABLE shop_order (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
)
