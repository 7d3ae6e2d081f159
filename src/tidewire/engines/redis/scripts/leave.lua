-- A gateway ends: nothing is pushed to it any more. KEYS: gateway, stream.
return redis.call('DEL', KEYS[1], KEYS[2])
