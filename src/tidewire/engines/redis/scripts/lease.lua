-- Ask for the leases of chats.
-- ARGV: gateway, life in ms, then (chat, a gateway that it may be taken from or '') for each.
-- Returns for each who has it now: who asks, if nobody that is there had it.
local gateway, life_ms = ARGV[1], ARGV[2]
local holders = {}
for index = 3, #ARGV, 2 do
  local key, avoided = prefix .. 'lease:' .. ARGV[index], ARGV[index + 1]
  local holder = redis.call('GET', key)
  if not holder or holder == gateway or holder == avoided
    or not redis.call('HGET', gateway_key(holder), 'incarnation') then
    redis.call('SET', key, gateway, 'PX', life_ms)
    holder = gateway
  end
  holders[#holders + 1] = holder
end
return holders
