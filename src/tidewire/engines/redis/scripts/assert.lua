-- A gateway says which routes it has: they live on, and those that were missing are back.
-- KEYS: the route key of each one's user. ARGV: gateway, life in ms, then (connection, device) for
-- each. Returns the connections that were missing.
local gateway, life_ms = ARGV[1], tonumber(ARGV[2])
local now_ms = time_ms()
local missing = {}
for index = 1, #KEYS do
  local key, connection, device = KEYS[index], ARGV[1 + 2 * index], ARGV[2 + 2 * index]
  local known = redis.call('HGET', key, connection)
  local expires_at_ms = known and known:match('^' .. gateway .. ' (%d+) ')
  if not expires_at_ms or tonumber(expires_at_ms) <= now_ms then
    missing[#missing + 1] = connection
  end
  put_route(key, connection, gateway, device, now_ms, life_ms)
end
return missing
