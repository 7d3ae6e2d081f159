-- A gateway says which routes it has: they live on, and those that were missing are back.
-- ARGV: gateway, incarnation, life in ms, the last entry drained or '', then (user, connection,
-- device) for each route.
-- Returns {1 if the gateway is known, its counter, the connections that were missing...}. If it is
-- not, nothing was done.
local gateway, incarnation, life_ms, drained = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if not is_own(gateway, incarnation) then
  return {0, 0}
end
local now_ms = time_ms()
local key, stream = gateway_key(gateway), stream_key(gateway, incarnation)
redis.call('PEXPIRE', key, life_ms)
redis.call('ZADD', GATEWAYS, whole(now_ms + life_ms), gateway)
if drained ~= '' then
  redis.call('XTRIM', stream, 'MINID', drained)
end
redis.call('PEXPIRE', stream, life_ms)
local answer = {1, tonumber(redis.call('HGET', key, 'counter') or 0)}
for index = 5, #ARGV, 3 do
  local user, connection, device = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local known = redis.call('HGET', route_key(user), connection)
  local expires_at_ms = known and known:match('^' .. gateway .. ' (%d+) ')
  if not expires_at_ms or tonumber(expires_at_ms) <= now_ms then
    answer[#answer + 1] = connection
  end
  put_route(user, connection, gateway, device, now_ms, life_ms)
end
return answer
