-- release: remove a lease if it is still ours. Sent twice, it does no harm.
--
-- KEYS[1]  lease key
-- ARGV[1]  nonce
--
-- Reply: "released", "gone" or "taken"

local lease = redis.call('GET', KEYS[1])
if not lease then return 'gone' end
if string.sub(lease, 1, 33) ~= ARGV[1] .. ' ' then return 'taken' end
redis.call('DEL', KEYS[1])
return 'released'
