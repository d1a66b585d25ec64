-- renew: give a lease that is still ours a new TTL. It never creates one.
--
-- KEYS[1]  lease key
-- ARGV[1]  nonce
-- ARGV[2]  TTL in ms
--
-- Reply: "renewed", "gone" or "taken"

local lease = redis.call('GET', KEYS[1])
if not lease then return 'gone' end
if string.sub(lease, 1, 33) ~= ARGV[1] .. ' ' then return 'taken' end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'renewed'
