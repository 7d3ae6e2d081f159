-- Make routes of a gateway known. KEYS: the route key of each one's user. ARGV: gateway, life in ms,
-- then (connection, device) for each.
-- Returns for each {connections on other devices elsewhere, then gateway and connection of each one
-- of the same device elsewhere, which is to be closed...}.
local gateway, life_ms = ARGV[1], tonumber(ARGV[2])
local now_ms = time_ms()
local answer = {}
for index = 1, #KEYS do
  local key, connection, device = KEYS[index], ARGV[1 + 2 * index], ARGV[2 + 2 * index]
  local found = {0}
  for _, route in ipairs(live_routes(key, now_ms)) do
    if route[2] ~= gateway then
      if route[3] == device then
        found[#found + 1] = route[2]
        found[#found + 1] = route[1]
      else
        found[1] = found[1] + 1
      end
    end
  end
  put_route(key, connection, gateway, device, now_ms, life_ms)
  answer[index] = found
end
return answer
