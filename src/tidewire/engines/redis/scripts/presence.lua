-- How many connections each of these users has. ARGV: users. Returns a count for each.
local now_ms = time_ms()
local counts = {}
for index = 1, #ARGV do
  counts[index] = #live_routes(ARGV[index], now_ms)
end
return counts
