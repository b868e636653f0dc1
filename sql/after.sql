-- Runs after the numbered migrations, each time; every step can be repeated.
SELECT 1;
