-- A gateway ends: nothing is pushed to it any more.
-- ARGV: gateway, incarnation.
redis.call('DEL', gateway_key(ARGV[1]), stream_key(ARGV[1], ARGV[2]))
redis.call('ZREM', GATEWAYS, ARGV[1])
return 1
