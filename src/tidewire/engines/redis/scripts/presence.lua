-- How many connections users have. KEYS: a route key for each user. Returns a count for each.
local now_ms = time_ms()
local counts = {}
for index = 1, #KEYS do
  counts[index] = #live_routes(KEYS[index], now_ms)
end
return counts
