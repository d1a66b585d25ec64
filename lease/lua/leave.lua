-- leave: a waiter gives up its place.
--
-- KEYS[1]  lease key
-- KEYS[2]  queue key
-- ARGV[1]  waiter       as it stands in the queue
-- ARGV[2]  channel      what a manager's id is appended to
--
-- Reply: "left"; "reserved" if the lease is reserved for the waiter, or "granted" if it was granted in its name, which
-- release then hands on

local wasHead = redis.call('ZRANGE', KEYS[2], 0, 0)[1] == ARGV[1]
redis.call('ZREM', KEYS[2], ARGV[1])

local me, lease = string.sub(ARGV[1], 1, 32), redis.call('GET', KEYS[1])
if lease == '~' .. me then return 'reserved' end
if lease and string.sub(lease, 1, 33) == me .. ' ' then return 'granted' end
if wasHead then
  -- The new head has to know, because the head watches the holder's TTL.
  local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if head then
    redis.pcall('PUBLISH', ARGV[2] .. string.sub(head, 33, 64), string.sub(head, 1, 32) .. ' 0')
  end
end
return 'left'
