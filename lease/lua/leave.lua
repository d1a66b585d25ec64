-- leave: a waiter gives up its place. The lease, if reserved for it, goes to the next waiter.
--
-- KEYS[1]  lease key
-- KEYS[2]  queue key
-- ARGV[1]  waiter       "<waiter><manager>"
-- ARGV[2]  channel      what a manager's id is appended to
-- ARGV[3]  reservation  in ms, the shortest; "0" if the queue is off
-- ARGV[4]  "1" where PUBLISH tells how many subscribers received it, that is, outside a cluster
--
-- Reply: "left"; "left <ms>" if the lease is reserved for the next waiter for that long and others stand behind it

local function tell(waiter, ms)
  return redis.pcall('PUBLISH', ARGV[2] .. string.sub(waiter, 33), string.sub(waiter, 1, 32) .. ' ' .. ms)
end

local wasHead = redis.call('ZRANGE', KEYS[2], 0, 0)[1] == ARGV[1]
redis.call('ZREM', KEYS[2], ARGV[1])

if redis.call('GET', KEYS[1]) == '~' .. string.sub(ARGV[1], 1, 32) then
  local first_two = redis.call('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
  while first_two[1] and tell(first_two[1], '0') == 0 and ARGV[4] == '1' do
    redis.call('ZREM', KEYS[2], first_two[1])
    first_two = redis.call('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
  end
  if not first_two[1] then
    redis.call('DEL', KEYS[1])
    return 'left'
  end
  local ms = string.format('%d', math.max(tonumber(ARGV[3]), tonumber(first_two[2]) % 1 * 16384, 1))
  if redis.pcall('SET', KEYS[1], '~' .. string.sub(first_two[1], 1, 32), 'PX', ms).err then
    redis.call('DEL', KEYS[1]) -- no memory: the next waiter still comes first
  elseif first_two[3] then
    tell(first_two[3], ms)
    return 'left ' .. ms
  end
elseif wasHead then
  -- The new head has to know, because the head watches the holder's TTL.
  local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if head then tell(head, '0') end
end
return 'left'
