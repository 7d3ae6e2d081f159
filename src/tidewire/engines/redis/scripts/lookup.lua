-- At which gateways users are connected. KEYS: a route key for each user.
-- Returns for each the gateways with a space between them.
local now_ms = time_ms()
local answer = {}
for index = 1, #KEYS do
  local values = redis.call('HVALS', KEYS[index])
  local first = values[1] or ''
  for at = 1, #values do
    local gateway, expires_at_ms = values[at]:match('^(%S+) (%d+) ')
    if not gateway or tonumber(expires_at_ms) <= now_ms then
      -- The slower way, which forgets them.
      values, first = nil, ''
      break
    end
    if at == 1 then
      first = gateway
    elseif gateway ~= first then
      values = nil
      break
    end
  end
  if not values then
    local seen, gateways = {}, {}
    for _, route in ipairs(live_routes(KEYS[index], now_ms)) do
      if not seen[route[2]] then
        seen[route[2]] = true
        gateways[#gateways + 1] = route[2]
      end
    end
    first = table.concat(gateways, ' ')
  end
  answer[index] = first
end
return answer
