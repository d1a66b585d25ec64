-- raise: raise a counter to a token, so that the next grant's token is above it. It never lowers a counter.
--
-- KEYS[1]  counter key
-- ARGV[1]  token        in decimal digits
-- ARGV[2]  idle time in ms of a counter that is created here, "0" for one that never expires
--
-- Reply: "raised", "above" if the counter is there already, or "bad" if it is not a number

local counter = redis.call('GET', KEYS[1])
if counter and not string.find(counter, '^[1-9]%d*$') and counter ~= '0' then return 'bad' end
local now = counter or ''
if #ARGV[1] < #now or #ARGV[1] == #now and ARGV[1] <= now then return 'above' end
if counter then
  redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL')
elseif ARGV[2] ~= '0' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[1])
end
return 'raised'
