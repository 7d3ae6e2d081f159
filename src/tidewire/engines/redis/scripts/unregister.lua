-- Forget routes. ARGV: (user, connection) for each.
for index = 1, #ARGV, 2 do
  redis.call('HDEL', route_key(ARGV[index]), ARGV[index + 1])
end
return 1
