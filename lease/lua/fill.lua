-- fill: restore the share of a lease on a node of a quorum that lost it, while a majority confirms the lease.
--
-- KEYS[1]  lease key
-- KEYS[2]  counter key
-- ARGV[1]  nonce
-- ARGV[2]  TTL in ms
-- ARGV[3]  label
-- ARGV[4]  counter idle time in ms, "0" for a counter that never expires
-- ARGV[5]  token, in decimal digits
--
-- Reply: "filled", or "taken" if another holder has the key
--
-- The counter is raised to the token and never lowered. An existing share keeps its TTL: this call may arrive after a
-- renewal that promised more.

local lease = redis.call('GET', KEYS[1])
if lease and string.sub(lease, 1, 33) ~= ARGV[1] .. ' ' then return 'taken' end
local counter = redis.call('GET', KEYS[2]) or '0'
if #ARGV[5] > #counter or #ARGV[5] == #counter and ARGV[5] > counter then redis.call('SET', KEYS[2], ARGV[5]) end
if ARGV[4] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[4]) else redis.call('PERSIST', KEYS[2]) end
if not lease then redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[5] .. ' ' .. ARGV[3], 'PX', ARGV[2]) end
return 'filled'
