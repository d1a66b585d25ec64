-- acquire_all: grant several leases, each in the simplest case of acquire: the lease is free, nobody waits for it, and
-- its counter is good or absent. Every other resource is left out, for acquire to decide about.
--
-- KEYS     of n resources: their n counter keys, then their n lease keys, then their n queue keys
-- ARGV[1]  nonces       32 digits each, with nothing between them
-- ARGV[2]  TTL in ms
-- ARGV[3]  label
-- ARGV[4]  counter idle time in ms, "0" for counters that never expire
--
-- Reply: n tokens in decimal digits, with a space between two; "0" for a resource that was left out
--
-- An error in the middle leaves grants behind. acquire, asked with the same nonce, finds them.
--
-- Tokens are counted here only while Lua's numbers are exact. A counter of more digits is left out.

redis.replicate_commands() -- see acquire.lua

local n = #KEYS / 3
local nonces, ttl, label, idle = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local free = redis.call('EXISTS', unpack(KEYS, n + 1, 3 * n)) == 0 -- all of them: mostly there is nothing
local last = redis.call('MGET', unpack(KEYS, 1, n)) -- false if there is none, and if it is of another type
local tokens = {}
for i = 1, n do
  local counter, lease = KEYS[i], KEYS[n + i]
  local token = '0'
  if free or redis.call('EXISTS', lease, KEYS[2 * n + i]) == 0 then
    if not last[i] then
      if redis.call('EXISTS', counter) == 0 then token = '1' end
    elseif #last[i] <= 15 and string.find(last[i], '^[1-9]%d*$') then
      token = string.format('%.0f', last[i] + 1)
    end
  end
  if token ~= '0' then
    -- The counter comes first: if it fails, no lease is left behind without a token.
    if idle ~= '0' then redis.call('SET', counter, token, 'PX', idle) else redis.call('SET', counter, token) end
    redis.call('SET', lease, string.sub(nonces, 32 * i - 31, 32 * i) .. ' ' .. token .. ' ' .. label, 'PX', ttl)
  end
  tokens[i] = token
end
return table.concat(tokens, ' ')
