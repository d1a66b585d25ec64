-- acquire: grant the lease if it is free and it is the caller's turn.
--
-- KEYS[1]  lease key:   "<nonce> <token> <label>", expires with the lease; or, for a short time after
--                       a release, "~<waiter>": reserved for the head of the queue
-- KEYS[2]  counter key: the last token issued, in decimal digits
-- KEYS[3]  queue key:   sorted set of waiters in the order they came, "<waiter><manager>", 32 digits each
-- ARGV[1]  nonce        32 hexadecimal digits
-- ARGV[2]  TTL in ms
-- ARGV[3]  label        for people
-- ARGV[4]  counter idle time in ms, "0" for a counter that never expires
-- ARGV[5]  floor        the token issued is above it; decimal digits, "0" for none
-- ARGV[6]  waiter       "<waiter><manager>", 64 hexadecimal digits; "" for a caller that does not wait
-- ARGV[7]  channel      what a manager's id is appended to
-- ARGV[8]  reservation  in ms; "0" where the queue is off: waiters are told, and nothing is kept for them
-- ARGV[9]  queue TTL in ms
-- ARGV[10] "1" where PUBLISH tells how many heard it, that is, outside a cluster
--
-- Reply: "<token>", the lease is granted
--        {"held", remaining ms, label, place in the queue from 0 (-1 for none)}
--        {"bad", "lease" or "counter", reason}
-- A key of another type is the server's own error, WRONGTYPE.
--
-- Tokens stay decimal strings: Lua's numbers are doubles, wrong from 2^53. The common path, a free
-- lease and nobody waiting, comes first and makes no table and no function.

local lease = redis.call('GET', KEYS[1])
local waiter = ARGV[6]
local turn = false -- the lease is reserved for the caller

if lease then
  local ttl, label
  if #lease == 33 and string.byte(lease) == 126 then -- "~"
    turn = string.sub(lease, 2) == string.sub(waiter, 1, 32)
    if not turn then ttl, label = math.max(redis.call('PTTL', KEYS[1]), 1), 'reserved' end
  else
    local nonce, token
    nonce, token, label = string.match(lease, '^(%x+) (%d+) (.*)$')
    if not nonce or #nonce ~= 32 then return {'bad', 'lease', 'not written by fencepost'} end
    -- A client that lost the reply asks again: it must not count as its own rival.
    if nonce == ARGV[1] then return token end
    ttl = redis.call('PTTL', KEYS[1])
    if ttl < 0 then return {'bad', 'lease', 'without a TTL'} end
  end
  if not turn then
    if waiter == '' then return {'held', ttl, label, -1} end
    if not redis.call('ZSCORE', KEYS[3], waiter) then
      local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
      redis.call('ZADD', KEYS[3], (tonumber(last[2]) or 0) + 1, waiter)
    end
    redis.call('PEXPIRE', KEYS[3], ARGV[9])
    return {'held', ttl, label, redis.call('ZRANK', KEYS[3], waiter)}
  end
elseif redis.call('EXISTS', KEYS[3]) == 1 and ARGV[8] ~= '0' then
  -- Free, yet others came first: a holder died, or a reservation ran out.
  local head = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  while head and head ~= waiter do
    redis.call('ZREM', KEYS[3], head)
    local heard = redis.pcall('PUBLISH', ARGV[7] .. string.sub(head, 33), string.sub(head, 1, 32) .. ' 0')
    if heard ~= 0 or ARGV[10] ~= '1' then
      redis.call('SET', KEYS[1], '~' .. string.sub(head, 1, 32), 'PX', ARGV[8])
      if waiter == '' then return {'held', tonumber(ARGV[8]), 'reserved', -1} end
      local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
      redis.call('ZADD', KEYS[3], 'NX', (tonumber(last[2]) or 0) + 1, waiter)
      redis.call('PEXPIRE', KEYS[3], ARGV[9])
      return {'held', tonumber(ARGV[8]), 'reserved', redis.call('ZRANK', KEYS[3], waiter)}
    end
    head = redis.call('ZRANGE', KEYS[3], 0, 0)[1] -- nobody heard: its process is no more
  end
end

if ARGV[5] ~= '0' then
  local counter = redis.call('GET', KEYS[2]) or '0'
  if #ARGV[5] > #counter or #ARGV[5] == #counter and ARGV[5] > counter then
    redis.call('SET', KEYS[2], ARGV[5])
  end
end

-- The counter comes first: should it fail, no lease is left behind without a token.
local token = redis.pcall('INCR', KEYS[2])
if type(token) == 'table' then
  if string.sub(token.err, 1, 4) ~= 'ERR ' then return token end -- OOM, READONLY: the server's own
  if redis.call('GET', KEYS[2]) == '9223372036854775807' then return {'bad', 'counter', 'at its maximum'} end
  return {'bad', 'counter', 'not a number'}
end
if token < 1 then return {'bad', 'counter', 'not a number'} end
if token < 9007199254740992 then
  token = string.format('%.0f', token)
else
  token = redis.call('GET', KEYS[2])
end
if ARGV[4] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. token .. ' ' .. ARGV[3], 'PX', ARGV[2])
if waiter ~= '' and not turn then redis.call('ZREM', KEYS[3], waiter) end -- whose turn it is has left it
return token
