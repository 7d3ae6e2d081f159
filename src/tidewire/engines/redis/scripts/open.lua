-- A gateway begins anew: another incarnation, a counter of 0, a stream of its own.
-- ARGV: gateway, incarnation, the incarnation before or '', life in ms.
-- Called again with the same incarnation, because the answer was lost, it changes nothing.
local gateway, incarnation, before, life_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local key = gateway_key(gateway)
if before ~= '' then
  redis.call('DEL', stream_key(gateway, before))
end
if redis.call('HGET', key, 'incarnation') ~= incarnation then
  redis.call('HSET', key, 'incarnation', incarnation, 'counter', 0, 'news', 1)
end
redis.call('PEXPIRE', key, life_ms)
redis.call('ZADD', GATEWAYS, whole(time_ms() + life_ms), gateway)
return 1
