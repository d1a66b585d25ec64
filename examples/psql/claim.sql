-- Claims a resource and prints "token nonce".
--   psql -v resource=NAME -v label=WHO -f claim.sql
-- Whoever claims takes over: every earlier claim of the resource is stale from then on.

-- A token of 1 asks what the fence carries; where there is no fence yet, it has been claimed by that.
-- Otherwise the next number is claimed, with the same nonce. If somebody else takes that number first,
-- nothing is printed, and the caller tries again.
\set ON_ERROR_STOP on
SELECT gen_random_uuid() AS nonce \gset
SELECT claimed, current, CASE WHEN claimed THEN current ELSE current + 1 END AS token
  FROM fencepost.claim(:'resource', 1, :'nonce', :'label') \gset
SELECT token || ' ' || :'nonce'
  FROM (SELECT :'token' AS token, claimed FROM fencepost.claim(:'resource', :'token', :'nonce', :'label')) AS c
 WHERE claimed;
