-- evict: take a lease away from its holder, so that an operator can hand it on.
--
-- KEYS[1]  lease key
-- ARGV[1]  nonce        of the holder
-- ARGV[2]  token        that the lease must have, in decimal digits
-- ARGV[3]  nonce        that the lease has from now on
--
-- Reply: "evicted", "gone" or "taken"
--
-- The lease keeps its TTL and is not free: the holder is told at its next renewal, and nobody gets it before a release
-- under the new nonce. A holder that was given another token meanwhile may have claimed it, and is left alone.

local lease = redis.call('GET', KEYS[1])
if not lease then return 'gone' end
local nonce, token = string.match(lease, '^(%x+) (%d+) ')
if nonce ~= ARGV[1] or token ~= ARGV[2] then return 'taken' end
redis.call('SET', KEYS[1], ARGV[3] .. ' ' .. token .. ' evicted', 'KEEPTTL')
return 'evicted'
