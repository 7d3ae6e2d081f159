-- Ask for the lease of a chat. KEYS: the lease. ARGV: gateway, life in ms, a gateway that it may be
-- taken from or ''. Returns who has it now: the gateway that asks, if no other had it.
local holder = redis.call('GET', KEYS[1])
if not holder or holder == ARGV[1] or holder == ARGV[3] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]
end
return holder
