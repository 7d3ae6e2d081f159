-- A gateway begins anew: another incarnation, a counter of 0, an empty stream.
-- KEYS: gateway, stream, the stream of the incarnation before. ARGV: incarnation, life in ms.
-- Called again with the same incarnation, because the answer was lost, it changes nothing.
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  redis.call('DEL', KEYS[2])
  redis.call('DEL', KEYS[3])
  -- It knows entries of the kind 'news'.
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'counter', 0, 'news', 1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
