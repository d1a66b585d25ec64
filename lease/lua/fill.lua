-- fill: give a node that has lost the lease of a quorum its share back, while a majority confirms it.
--
-- KEYS[1]  lease key
-- KEYS[2]  counter key
-- ARGV[1]  nonce
-- ARGV[2]  TTL in ms
-- ARGV[3]  label
-- ARGV[4]  counter idle time in ms, "0" for a counter that never expires
-- ARGV[5]  token, in decimal digits
--
-- Reply: "filled", or "taken" where the key is not free
--
-- The counter is raised to the token and never lowered.

if redis.call('EXISTS', KEYS[1]) == 1 then return 'taken' end
local counter = redis.call('GET', KEYS[2]) or '0'
if #ARGV[5] > #counter or #ARGV[5] == #counter and ARGV[5] > counter then redis.call('SET', KEYS[2], ARGV[5]) end
if ARGV[4] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[5] .. ' ' .. ARGV[3], 'PX', ARGV[2])
return 'filled'
