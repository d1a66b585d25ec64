-- leave: a waiter gives up. What was kept for it goes to the next.
--
-- KEYS[1]  lease key
-- KEYS[2]  queue key
-- ARGV[1]  waiter       "<waiter><manager>"
-- ARGV[2]  channel      what a manager's id is appended to
-- ARGV[3]  reservation  in ms; "0" where the queue is off
-- ARGV[4]  "1" where PUBLISH tells how many heard it, that is, outside a cluster
--
-- Reply: "left"

local function tell(waiter, ms)
  return redis.pcall('PUBLISH', ARGV[2] .. string.sub(waiter, 33), string.sub(waiter, 1, 32) .. ' ' .. ms)
end

local wasHead = redis.call('ZRANGE', KEYS[2], 0, 0)[1] == ARGV[1]
redis.call('ZREM', KEYS[2], ARGV[1])
local reserved = redis.call('GET', KEYS[1]) == '~' .. string.sub(ARGV[1], 1, 32)

if reserved then
  local head
  repeat
    head = redis.call('ZPOPMIN', KEYS[2])[1]
  until not head or tell(head, '0') ~= 0 or ARGV[4] ~= '1'
  if head then
    redis.call('SET', KEYS[1], '~' .. string.sub(head, 1, 32), 'PX', ARGV[3])
    local next = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if next then tell(next, ARGV[3]) end
  else
    redis.call('DEL', KEYS[1])
  end
elseif wasHead then
  -- The new head has to know: it is the one that watches the holder's TTL.
  local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if head then tell(head, '0') end
end
return 'left'
