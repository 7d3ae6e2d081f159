-- Make routes known, and close older connections of the same devices at other gateways.
-- ARGV: gateway, incarnation, life in ms, entries of a stream at most, then (user, connection,
-- device) for each route.
-- Returns {1 if the gateway is known, connections on other devices elsewhere, for each route...}.
local gateway, incarnation = ARGV[1], ARGV[2]
local life_ms, entries_max = tonumber(ARGV[3]), tonumber(ARGV[4])
local now_ms = time_ms()
local answer = {is_own(gateway, incarnation) and 1 or 0}
for index = 5, #ARGV, 3 do
  local user, connection, device = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local elsewhere = 0
  for _, route in ipairs(live_routes(user, now_ms)) do
    if route[2] ~= gateway then
      if route[3] == device then
        append(route[2], entries_max, life_ms, 'duplicate', '', '', route[1])
      else
        elsewhere = elsewhere + 1
      end
    end
  end
  put_route(user, connection, gateway, device, now_ms, life_ms)
  answer[#answer + 1] = elsewhere
end
return answer
