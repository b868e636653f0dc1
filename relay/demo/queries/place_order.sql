INSERT INTO shop_order (customer) VALUES (%(customer)s) RETURNING id
