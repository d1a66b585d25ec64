-- Claims a resource and prints "token nonce".
--   psql -v resource=NAME -v label=WHO -f claim.sql
-- A claim takes over: every earlier claim of the resource is stale from then on.

-- Claiming token 1 returns the token that the fence carries. If there is no fence, the statement claims token 1.
-- Otherwise the script claims the next number, with the same nonce. If another session takes that number first, the
-- script prints nothing, and the caller tries again.
\set ON_ERROR_STOP on
SELECT gen_random_uuid() AS nonce \gset
SELECT claimed, current, CASE WHEN claimed THEN current ELSE current + 1 END AS token
  FROM fencepost.claim(:'resource', 1, :'nonce', :'label') \gset
SELECT token || ' ' || :'nonce'
  FROM (SELECT :'token' AS token, claimed FROM fencepost.claim(:'resource', :'token', :'nonce', :'label')) AS c
 WHERE claimed;
