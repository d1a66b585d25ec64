-- Adds to the account, under a claim.
--   psql -v resource=NAME -v token=TOKEN -v nonce=NONCE -v amount=N -f deposit.sql
-- If the claim is stale, enter raises SQLSTATE ZF001, psql stops there, and nothing is written.
\set ON_ERROR_STOP on
\set VERBOSITY verbose
BEGIN;
SELECT fencepost.enter(:'resource', :'token', :'nonce');
INSERT INTO shop.account AS a (id, balance) VALUES (1, :'amount')
    ON CONFLICT (id) DO UPDATE SET balance = a.balance + excluded.balance;
COMMIT;
