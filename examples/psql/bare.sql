-- What somebody types who knows nothing of fences. The table's door raises SQLSTATE ZF004.
\set ON_ERROR_STOP on
\set VERBOSITY verbose
UPDATE shop.account SET balance = balance + 100 WHERE id = 1;
