-- All gateways. KEYS: a list of them. Those that have expired are taken off it.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(time_ms()))
return redis.call('ZRANGE', KEYS[1], 0, -1)
