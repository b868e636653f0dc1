INSERT INTO url_fetch (url) VALUES (%(url)s) RETURNING id
