-- release: remove a lease if it is still ours, and hand it on to the head of the queue. Sending it twice is harmless.
--
-- KEYS[1]  lease key
-- KEYS[2]  queue key; omitted while the slot migrates and a cluster refuses scripts with a missing key
-- KEYS[3]  counter key; omitted with the queue key
-- ARGV[1]  nonce; or the waiter that the lease is reserved for, 32 digits
-- ARGV[2]  channel      what a manager's id is appended to
-- ARGV[3]  reservation  in ms, the shortest; "0" if the queue is off
-- ARGV[4]  "1" where PUBLISH tells how many subscribers received it, that is, outside a cluster
-- ARGV[5]  "1" to hand on a lease that is already free
-- ARGV[6]  in ms, the least time that a lease is granted to the head for
--
-- Reply: 1 or "released", "gone" or "taken"; "released <ms>" if it is reserved for that long and others stand behind
--
-- The head is told to come now. If its name in the queue ends with "+", the reservation is a lease of its own: it is
-- granted under the head's own digits, for ARGV[6] at least, and the message carries the grant:
-- "<waiter> = <token> <now> <end> <server>", both times in microseconds by this server's clock, the server as its run
-- id. The head then leaves the queue. Otherwise the lease key becomes "~<waiter>", and the head leaves the queue when
-- its own acquire is granted.
--
-- The head is passed over if no subscriber receives the message: its process is dead, or its subscription was cut, and
-- then it rejoins in the place it had. The second waiter is told to look once the reservation has run out, in case the
-- head hangs. A server that refuses PUBLISH is no failure: waiters look by themselves.

redis.replicate_commands() -- see acquire.lua

local lease = redis.call('GET', KEYS[1])
if not lease and ARGV[5] ~= '1' then return 'gone' end
if lease and string.sub(lease, 1, 33) ~= ARGV[1] .. ' ' and lease ~= '~' .. ARGV[1] then return 'taken' end
if #KEYS == 1 or redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1 -- which costs the client nothing to read
end

local function tell(waiter, message)
  return redis.pcall('PUBLISH', ARGV[2] .. string.sub(waiter, 33, 64), string.sub(waiter, 1, 32) .. ' ' .. message)
end

local server -- its run id; false if it may not be asked, nil before it was

-- grant makes the lease the head's for ms, and returns the message about it; nil if only a reservation can be made.
local function grant(head, ms)
  if server == nil then
    local info = redis.pcall('INFO', 'server')
    server = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or false
  end
  local token = server and redis.pcall('INCR', KEYS[3])
  if type(token) ~= 'number' then return nil end -- if the counter is bad, the head's own acquire says so
  if token < 1 then
    redis.call('DECR', KEYS[3])
    return nil
  end
  token = token < 9007199254740992 and string.format('%.0f', token) or redis.call('GET', KEYS[3])
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local ends = math.floor(now / 1000) + ms
  -- The end is set by the time that the message tells, not by when the server takes this script to have begun.
  local value = string.sub(head, 1, 32) .. ' ' .. token .. ' reserved'
  if redis.pcall('SET', KEYS[1], value, 'PX', ms).err then return nil end
  local set = redis.pcall('PEXPIREAT', KEYS[1], string.format('%.0f', ends))
  if type(set) == 'table' then return nil end
  return string.format('= %s %.0f %.0f %s', token, now, ends * 1000, server)
end

local head, next, ms, gone, message
repeat
  local first_two = redis.call('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
  head, next, gone, message = first_two[1], first_two[3], false, nil
  if head then
    ms = '0'
    if ARGV[3] ~= '0' then
      ms = string.format('%d', math.max(tonumber(ARGV[3]), tonumber(first_two[2]) % 1 * 16384))
      if string.sub(head, 65) == '+' then
        local long = string.format('%d', math.max(tonumber(ms), tonumber(ARGV[6])))
        message = grant(head, long)
        if message then ms = long end
      end
    end
    -- Told before the head: Redis delivers the last message first.
    if next then tell(next, ms) end
    local received = tell(head, message or '0')
    gone = received == 0 and ARGV[4] == '1'
    if type(received) == 'table' then message = nil end -- it cannot know of a grant, so it keeps its place
    if gone or message or ms == '0' then redis.call('ZREM', KEYS[2], head) end
  end
until not gone

if not head or ms == '0' then
  redis.call('DEL', KEYS[1])
  return 'released'
end
if not message and redis.pcall('SET', KEYS[1], '~' .. string.sub(head, 1, 32), 'PX', ms).err then
  redis.call('DEL', KEYS[1]) -- no memory: the head still comes first
  return 'released'
end
if next then return 'released ' .. ms end
return 'released'
