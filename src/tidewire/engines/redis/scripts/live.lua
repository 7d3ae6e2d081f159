-- A gateway lives on. KEYS: gateway, stream. ARGV: incarnation, life in ms, the last entry drained
-- or ''. Returns {1 if what it made is still there, its counter}. If not, nothing was done.
local known = redis.call('HMGET', KEYS[1], 'incarnation', 'counter')
if known[1] ~= ARGV[1] then
  return {0, 0}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[3] ~= '' then
  redis.call('XTRIM', KEYS[2], 'MINID', ARGV[3])
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return {1, tonumber(known[2] or 0)}
