-- Forget routes. KEYS: the route key of each one's user. ARGV: the connection of each.
for index = 1, #KEYS do
  redis.call('HDEL', KEYS[index], ARGV[index])
end
return 1
