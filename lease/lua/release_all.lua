-- release_all: remove several leases, each in the simplest case of release: it is still ours, and nobody waits for it.
-- Every other lease is left out, for release to decide about.
--
-- KEYS     of n leases: their n lease keys, then their n queue keys
-- ARGV[1]  nonces, 32 digits each, with nothing between them
--
-- Reply: a text of n digits, "1" for a lease that was removed and "0" for one that was left out

redis.replicate_commands() -- see acquire.lua

local n = #KEYS / 2
local nonces = ARGV[1]
local alone = redis.call('EXISTS', unpack(KEYS, n + 1, 2 * n)) == 0 -- nobody waits for any of them
local leases = redis.call('MGET', unpack(KEYS, 1, n)) -- false if there is none, and if it is of another type
local ours, answers = {}, {}
for i = 1, n do
  answers[i] = '0'
  if leases[i] and string.sub(leases[i], 1, 33) == string.sub(nonces, 32 * i - 31, 32 * i) .. ' '
    and (alone or redis.call('EXISTS', KEYS[n + i]) == 0) then
    ours[#ours + 1] = KEYS[i]
    answers[i] = '1'
  end
end
if #ours > 0 then redis.call('DEL', unpack(ours)) end
return table.concat(answers)
