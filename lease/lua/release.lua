-- release: remove a lease if it is still ours, and hand it on to the head of the queue. Sent twice, it
-- does no harm.
--
-- KEYS[1]  lease key
-- KEYS[2]  queue key
-- ARGV[1]  nonce
-- ARGV[2]  channel      what a manager's id is appended to
-- ARGV[3]  reservation  in ms; "0" where the queue is off
--
-- Reply: "released", "gone" or "taken"
--
-- The head is told to come now; the one behind it, to look once the reservation has run out, in case
-- the head is no more.

local lease = redis.call('GET', KEYS[1])
if not lease then return 'gone' end
if string.sub(lease, 1, 32) ~= ARGV[1] then return 'taken' end
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 'released'
end

local head = redis.call('ZPOPMIN', KEYS[2])[1]
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[1], '~' .. string.sub(head, 1, 32), 'PX', ARGV[3])
else
  redis.call('DEL', KEYS[1])
end
redis.call('PUBLISH', ARGV[2] .. string.sub(head, 33), string.sub(head, 1, 32) .. ' 0')
local next = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
if next then redis.call('PUBLISH', ARGV[2] .. string.sub(next, 33), string.sub(next, 1, 32) .. ' ' .. ARGV[3]) end
return 'released'
