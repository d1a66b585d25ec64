-- release: remove a lease if it is still ours, and hand it on to the head of the queue. Sent twice, it
-- does no harm.
--
-- KEYS[1]  lease key
-- KEYS[2]  queue key; left out while the slot moves and a cluster refuses scripts with a key that is not there
-- ARGV[1]  nonce
-- ARGV[2]  channel      what a manager's id is appended to
-- ARGV[3]  reservation  in ms; "0" where the queue is off
--
-- ARGV[4]  "1" where PUBLISH tells how many heard it, that is, outside a cluster
-- ARGV[5]  "1" to hand a lease on that is free already
--
-- Reply: "released", "gone" or "taken"
--
-- The head is told to come now, and passed over where nobody hears it: its process is no more. Those
-- behind it are told to look once the reservations before them have run out, in case it hangs. A server
-- that refuses to pass messages on has done its part all the same: waiters look by themselves.

local lease = redis.call('GET', KEYS[1])
if not lease and ARGV[5] ~= '1' then return 'gone' end
if lease and string.sub(lease, 1, 32) ~= ARGV[1] then return 'taken' end
if #KEYS == 1 or redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 'released'
end

-- Those behind are told before the head: Redis sends what was said last first.
local behind = ARGV[4] == '1' and 1 or 8 -- in a cluster the dead are not told from the living
local head, heard
repeat
  head = redis.call('ZPOPMIN', KEYS[2])[1]
  for place, waiter in ipairs(head and redis.call('ZRANGE', KEYS[2], 0, behind - 1) or {}) do
    local ms = string.format('%d', place * tonumber(ARGV[3]))
    redis.pcall('PUBLISH', ARGV[2] .. string.sub(waiter, 33), string.sub(waiter, 1, 32) .. ' ' .. ms)
  end
  heard = head and redis.pcall('PUBLISH', ARGV[2] .. string.sub(head, 33), string.sub(head, 1, 32) .. ' 0')
until not head or heard ~= 0 or ARGV[4] ~= '1'

if head and ARGV[3] ~= '0' then
  redis.call('SET', KEYS[1], '~' .. string.sub(head, 1, 32), 'PX', ARGV[3])
else
  redis.call('DEL', KEYS[1])
end
return 'released'
