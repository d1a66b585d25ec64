-- acquire: grant the lease if it is free and it is the caller's turn.
--
-- KEYS[1]  lease key:   "<nonce> <token> <label>", expires with the lease; or, for a short time,
--                       "~<waiter>": reserved for the head of the queue after a release, unless the release granted it
--                       in the head's name: "<waiter> <token> reserved"; or
--                       "?<head> <ms> <last>": a roll call, see below
-- KEYS[2]  counter key: the last token issued, in decimal digits
-- KEYS[3]  queue key:   sorted set of waiters, "<waiter><manager>", 32 digits each, then "+" if a release may
--                       grant the lease in the waiter's name. The score is the place, in ms since 1970 at the server;
--                       its fraction is the reservation that the waiter needs, in units of 16.384 s
-- ARGV[1]  nonce        32 hexadecimal digits; "" to grant nothing, only to look whether waiters wait for a free lease
-- ARGV[2]  TTL in ms
-- ARGV[3]  label        for people
-- ARGV[4]  counter idle time in ms, "0" for a counter that never expires
-- ARGV[5]  floor        the token issued is above it; decimal digits, "0" for none
-- ARGV[6]  waiter       as it stands in the queue; "" for a caller that does not wait
-- ARGV[7]  channel      what a manager's id is appended to
-- ARGV[8]  reservation  in ms, what the caller needs; "0" if the queue is off: waiters are told, nothing is reserved
-- ARGV[9]  queue TTL in ms
-- ARGV[10] "1" where PUBLISH tells how many subscribers received it, that is, outside a cluster
-- ARGV[11] place        that the waiter had before; "" for one that is new
--
-- Reply: the token, a number below 2^53 and else in decimal digits: the lease is granted
--        {"yours", "<token>"}, a release has granted it in the caller's name, and it now has the caller's TTL and label
--        {"held", ms until it may be the caller's turn, label, number in the queue from 0 (-1 for none), place}; for a
--        waiter with "+" also the server's time in microseconds and its run id, "" if INFO is not allowed
--        {"bad", "lease" or "counter", reason}
-- A key of another type gives the server's own error, WRONGTYPE.
--
-- A roll call: the lease is free, and those first in the queue have not come for it. They may be dead, since a host
-- that fell silent does not say so. All waiters are notified at once, the queue starts empty, and those that live
-- rejoin it in the places they had. For the first <ms> only the former head may have the lease; for as long again, the
-- first of those that rejoined may. <last> is the last place before the roll call. New waiters get a place behind it,
-- even if the queue is still empty.
--
-- Tokens stay decimal strings: Lua's numbers are doubles, wrong from 2^53. The common path, a free lease and nobody
-- waiting, comes first and makes no table and no function.

redis.replicate_commands() -- for Redis 6 under lua-replicate-commands no: the script reads clocks before it writes

local present = redis.call('EXISTS', KEYS[1], KEYS[3]) -- in one call: mostly there is neither
local lease = present > 0 and redis.call('GET', KEYS[1])
local waiter = ARGV[6]
local turn = waiter ~= '' and lease == '~' .. string.sub(waiter, 1, 32) -- the lease is reserved for the caller
local ttl, label -- of a lease that the caller cannot have now
local place, last = tonumber(ARGV[11]), 0 -- the caller's place, and a place that new waiters come after

if lease and not turn then
  local nonce, token, holder = string.match(lease, '^(%x+) (%d+) (.*)$')
  ttl, label = redis.call('PTTL', KEYS[1]), holder
  if nonce and #nonce == 32 then
    -- A client that lost the reply asks again: it must not count as its own rival.
    if nonce == ARGV[1] then return token end
    -- Invariant: a grant in the caller's name is never replaced, only prolonged. The caller may hold it by now.
    if waiter ~= '' and nonce == string.sub(waiter, 1, 32) then
      redis.call('SET', KEYS[1], nonce .. ' ' .. token .. ' ' .. ARGV[3],
        'PX', string.format('%d', math.max(ttl, tonumber(ARGV[2]))))
      if ARGV[4] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[4]) else redis.call('PERSIST', KEYS[2]) end
      return {'yours', token}
    end
  else
    local kind, head, window, before = string.match(lease, '^([~?])(%x+) ?(%d*) ?(%d*)$')
    if not kind or #head ~= 32 or (kind == '~') ~= (window == '') or kind == '~' and #lease ~= 33 then
      return {'bad', 'lease', 'not written by fencepost'}
    end
    label, last = 'reserved', tonumber(before) or 0
    if kind == '?' and waiter ~= '' then
      local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
      turn = head == string.sub(waiter, 1, 32) or ttl <= tonumber(window) and (not first or first == waiter)
    end
    if kind == '?' and ttl > tonumber(window) then ttl = ttl - tonumber(window) end
    if ttl == 0 then ttl = 1 end
  end
  if turn then
    ttl = nil
  elseif ttl < 0 then
    return {'bad', 'lease', 'without a TTL'}
  end
elseif present > 0 and not lease and ARGV[8] ~= '0' then -- present is the queue
  if redis.call('ZRANGE', KEYS[3], 0, 0)[1] == waiter then
    turn = true
  else
    -- Free, yet others came first: a holder died, or the waiter that it was reserved for has not come.
    local queue, told, head, window = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), {}, nil, tonumber(ARGV[8])
    for i = 1, #queue, 2 do
      if queue[i] == waiter then
        if not head then break end -- nobody before it received the message: their processes are dead
        place = place or math.floor(tonumber(queue[i + 1])) -- it was told its place, but the reply was lost
      end
      local manager = string.sub(queue[i], 33, 64)
      if told[manager] == nil then
        told[manager] = redis.pcall('PUBLISH', ARGV[7] .. manager, '* ' .. KEYS[1]) ~= 0 or ARGV[10] ~= '1'
      end
      if told[manager] then
        head = head or queue[i]
        window = math.max(window, tonumber(queue[i + 1]) % 1 * 16384)
      elseif not head then
        redis.call('ZREM', KEYS[3], queue[i])
      end
    end
    if head then
      redis.call('DEL', KEYS[3])
      last = math.floor(tonumber(queue[#queue]))
      redis.call('SET', KEYS[1], string.format('?%s %d %.0f', string.sub(head, 1, 32), window, last),
        'PX', string.format('%d', 2 * window))
      ttl, label = window, 'reserved'
    end
  end
end

if ttl then
  if waiter == '' then return {'held', ttl, label, -1, ''} end
  local score = redis.call('ZSCORE', KEYS[3], waiter)
  if score then place = math.floor(tonumber(score)) end
  if not place then
    local now, last_place = redis.call('TIME'), redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
    place = math.max(now[1] * 1000 + math.floor(now[2] / 1000), last + 1)
    if last_place then place = math.max(place, math.floor(tonumber(last_place)) + 1) end
  end
  local wanted = place + math.ceil(ARGV[8] / 8) / 2048
  if tonumber(score) ~= wanted then redis.call('ZADD', KEYS[3], string.format('%.17g', wanted), waiter) end
  redis.call('PEXPIRE', KEYS[3], ARGV[9])
  local rank = redis.call('ZRANK', KEYS[3], waiter)
  if string.sub(waiter, 65) ~= '+' then return {'held', ttl, label, rank, string.format('%.0f', place)} end
  local info, time = redis.pcall('INFO', 'server'), redis.call('TIME')
  local server = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
  return {'held', ttl, label, rank, string.format('%.0f', place),
    string.format('%.0f', time[1] * 1000000 + time[2]), server}
end
if ARGV[1] == '' then return {'held', 0, '', -1, ''} end

if ARGV[5] ~= '0' then
  local counter = redis.call('GET', KEYS[2]) or '0'
  if string.find(counter, '^[1-9]%d*$') or counter == '0' then -- INCR reports any other value
    if #ARGV[5] > #counter or #ARGV[5] == #counter and ARGV[5] > counter then
      redis.call('SET', KEYS[2], ARGV[5])
    end
  end
end

-- The counter comes first: if it fails, no lease is left behind without a token.
local token = redis.pcall('INCR', KEYS[2])
if type(token) == 'table' then
  if string.find(token.err, 'overflow', 1, true) then return {'bad', 'counter', 'at its maximum'} end
  if string.find(token.err, 'not an integer', 1, true) then return {'bad', 'counter', 'not a number'} end
  return token -- OOM, READONLY, a missing permission: the server's own error
end
if token < 1 then
  redis.call('DECR', KEYS[2]) -- an operator has to fix it; repeated calls must not count it up until it grants
  return {'bad', 'counter', 'negative'}
end
local digits
if token < 9007199254740992 then
  digits = string.format('%.0f', token)
else
  digits = redis.call('GET', KEYS[2])
  token = digits
end
if ARGV[4] ~= '0' then
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
else
  redis.call('PERSIST', KEYS[2]) -- a manager with an idle time may have granted before
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. digits .. ' ' .. ARGV[3], 'PX', ARGV[2])
if waiter ~= '' then redis.call('ZREM', KEYS[3], waiter) end
return token
