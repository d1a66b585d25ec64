-- confirm: make a lease that a release granted in our name last as long as we asked for.
--
-- KEYS[1]  lease key
-- KEYS[2]  counter key
-- ARGV[1]  nonce
-- ARGV[2]  TTL in ms
-- ARGV[3]  label
-- ARGV[4]  counter idle time in ms, "0" for a counter that never expires
-- ARGV[5]  token that the lease must have, in decimal digits; "" for any, if it is trusted already
--
-- Reply: "renewed", "gone" or "taken"
--
-- It never creates a lease, and takes no time away.

redis.replicate_commands() -- see acquire.lua

local lease = redis.call('GET', KEYS[1])
if not lease then return 'gone' end
local nonce, token = string.match(lease, '^(%x+) (%d+) ')
if nonce ~= ARGV[1] or ARGV[5] ~= '' and token ~= ARGV[5] then return 'taken' end
local ms = string.format('%d', math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
redis.call('SET', KEYS[1], nonce .. ' ' .. token .. ' ' .. ARGV[3], 'PX', ms)
if ARGV[4] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[4]) else redis.call('PERSIST', KEYS[2]) end
return 'renewed'
