-- reissue: give the holder a token just above the fence, after the fence refused the first one.
--
-- KEYS[1]  lease key
-- KEYS[2]  counter key
-- ARGV[1]  nonce
-- ARGV[2]  what the fence carries, in decimal digits
-- ARGV[3]  counter idle time in ms, "0" for a counter that never expires
--
-- Reply: {"reissued", token}, {"gone"} or {"taken"}
--
-- The counter moves to the fence plus one, up or down: down if it had run wild. The lease keeps its TTL, because this
-- is not a renewal.

local lease = redis.call('GET', KEYS[1])
if not lease then return {'gone'} end
if string.sub(lease, 1, 33) ~= ARGV[1] .. ' ' then return {'taken'} end

redis.call('SET', KEYS[2], ARGV[2])
redis.call('INCR', KEYS[2])
local token = redis.call('GET', KEYS[2])
if ARGV[3] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
local label = string.match(lease, '^%x+ %d+ (.*)$')
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. token .. ' ' .. label, 'KEEPTTL')
return {'reissued', token}
