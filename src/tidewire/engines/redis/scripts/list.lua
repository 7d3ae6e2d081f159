-- Put a gateway on a list of gateways, or take it off. KEYS: the list. ARGV: gateway, life in ms; 0
-- takes it off. Returns 1 if it was on it.
local was_there = redis.call('ZSCORE', KEYS[1], ARGV[1]) and 1 or 0
if ARGV[2] == '0' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], whole(time_ms() + ARGV[2]), ARGV[1])
end
return was_there
