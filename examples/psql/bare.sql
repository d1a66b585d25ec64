-- What somebody types who does not know about fences. The table's protection raises SQLSTATE ZF004.
\set ON_ERROR_STOP on
\set VERBOSITY verbose
UPDATE shop.account SET balance = balance + 100 WHERE id = 1;
