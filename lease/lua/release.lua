-- release: remove a lease if it is still ours, and hand it on to the head of the queue. Sending it twice is harmless.
--
-- KEYS[1]  lease key
-- KEYS[2]  queue key; omitted while the slot migrates and a cluster refuses scripts with a missing key
-- ARGV[1]  nonce
-- ARGV[2]  channel      what a manager's id is appended to
-- ARGV[3]  reservation  in ms, the shortest; "0" if the queue is off
-- ARGV[4]  "1" where PUBLISH tells how many subscribers received it, that is, outside a cluster
-- ARGV[5]  "1" to hand on a lease that is already free
--
-- Reply: 1 or "released", "gone" or "taken"; "released <ms>" if it is reserved for that long and others stand behind
--
-- The head is told to come now. It is passed over if no subscriber receives the message: its process is dead, or its
-- subscription was cut, and then it rejoins in the place it had. The second waiter is told to look once the reservation
-- has run out, in case the head hangs. A server that refuses PUBLISH is no failure: waiters look by themselves. The
-- head leaves the queue when it is granted the lease.

local lease = redis.call('GET', KEYS[1])
if not lease and ARGV[5] ~= '1' then return 'gone' end
if lease and string.sub(lease, 1, 33) ~= ARGV[1] .. ' ' then return 'taken' end
if #KEYS == 1 or redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1 -- which costs the client nothing to read
end

local head, next, ms, gone
repeat
  local first_two = redis.call('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
  head, next, gone = first_two[1], first_two[3], false
  if head then
    ms = '0'
    if ARGV[3] ~= '0' then ms = string.format('%d', math.max(tonumber(ARGV[3]), tonumber(first_two[2]) % 1 * 16384)) end
    -- Told before the head: Redis delivers the last message first.
    if next then redis.pcall('PUBLISH', ARGV[2] .. string.sub(next, 33), string.sub(next, 1, 32) .. ' ' .. ms) end
    local received = redis.pcall('PUBLISH', ARGV[2] .. string.sub(head, 33), string.sub(head, 1, 32) .. ' 0')
    gone = received == 0 and ARGV[4] == '1'
    if gone or ms == '0' then redis.call('ZREM', KEYS[2], head) end
  end
until not gone

if not head or ms == '0' then
  redis.call('DEL', KEYS[1])
  return 'released'
end
if redis.pcall('SET', KEYS[1], '~' .. string.sub(head, 1, 32), 'PX', ms).err then
  redis.call('DEL', KEYS[1]) -- no memory: the head still comes first
  return 'released'
end
if next then return 'released ' .. ms end
return 'released'
