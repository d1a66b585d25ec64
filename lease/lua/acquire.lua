-- acquire: grant the lease if it is free.
--
-- KEYS[1]  lease key:   "<nonce> <token> <label>", expires with the lease
-- KEYS[2]  counter key: the last token issued, in decimal digits
-- ARGV[1]  nonce        32 hexadecimal digits
-- ARGV[2]  label        for people
-- ARGV[3]  TTL in ms
-- ARGV[4]  floor        the token issued is above it; decimal digits, "0" for none
-- ARGV[5]  counter idle time in ms, "0" for a counter that never expires
--
-- Reply: {"granted", token, counter before ("" where it was absent)}
--        {"held", remaining ms, label}
--        {"bad", "lease" or "counter", reason}
--
-- Tokens stay decimal strings throughout: Lua's numbers are doubles, wrong from 2^53.

-- above compares two decimal strings without sign or leading zeros.
local function above(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and value.err then
    if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return nil, 'of another type', nil end
    return nil, nil, value
  end
  return value, nil, nil
end

local lease, odd, failure = get(KEYS[1])
if failure then return failure end
if odd then return {'bad', 'lease', odd} end

if lease then
  local nonce, token, label = string.match(lease, '^(%x+) (%d+) (.*)$')
  if not nonce or #nonce ~= 32 then return {'bad', 'lease', 'not written by fencepost'} end
  -- A client that lost the reply asks again: it must not count as its own rival.
  if nonce == ARGV[1] then return {'granted', token, token} end
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl < 0 then return {'bad', 'lease', 'without a TTL'} end
  return {'held', ttl, label}
end

local counter
counter, odd, failure = get(KEYS[2])
if failure then return failure end
if odd then return {'bad', 'counter', odd} end
local before = counter or ''

if counter and not string.match(counter, '^%d+$') then return {'bad', 'counter', 'not a number'} end
if counter and #counter > 1 and string.sub(counter, 1, 1) == '0' then return {'bad', 'counter', 'not a number'} end
if above(ARGV[4], counter or '0') then
  counter = ARGV[4]
  redis.call('SET', KEYS[2], counter)
end
if counter and not above('9223372036854775807', counter) then return {'bad', 'counter', 'at its maximum'} end

-- The counter comes first: should it fail, no lease is left behind without a token.
redis.call('INCR', KEYS[2])
local token = redis.call('GET', KEYS[2])
if ARGV[5] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[5]) end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. token .. ' ' .. ARGV[2], 'PX', ARGV[3])
return {'granted', token, before}
