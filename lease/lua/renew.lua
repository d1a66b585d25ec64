-- renew: give a lease that is still ours a new TTL. It never creates one.
--
-- KEYS[1]  lease key
-- ARGV[1]  nonce
-- ARGV[2]  TTL in ms
-- ARGV[3]  "1" if the key may be left with less time than it has: the holder asked for that and expects it
--
-- Reply: "renewed", "gone" or "taken"
--
-- A renewal may arrive late, when a later one has been answered and is relied on. It then takes no time away.

redis.replicate_commands() -- see acquire.lua

local lease = redis.call('GET', KEYS[1])
if not lease then return 'gone' end
if string.sub(lease, 1, 33) ~= ARGV[1] .. ' ' then return 'taken' end
if ARGV[3] == '1' or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 'renewed'
