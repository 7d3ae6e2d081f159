-- Add what one process has used of limits to what all have used. KEYS: a key for each limit.
-- ARGV: (interval in us, count used, which is negative for what was given back) for each.
-- Returns for each in how many microseconds it will be as if unused.
local now_us = time_us()
local answer = {}
for index = 1, #KEYS do
  local key, interval_us, used = KEYS[index], ARGV[2 * index - 1], ARGV[2 * index]
  local clear_at_us = math.max(tonumber(redis.call('GET', key) or 0), now_us)
  clear_at_us = math.max(clear_at_us + interval_us * used, now_us)
  local left_us = clear_at_us - now_us
  if used ~= '0' then
    if left_us > 0 then
      redis.call('SET', key, whole(clear_at_us), 'PX', whole(math.ceil(left_us / 1000)))
    else
      redis.call('DEL', key)
    end
  end
  answer[index] = left_us
end
return answer
