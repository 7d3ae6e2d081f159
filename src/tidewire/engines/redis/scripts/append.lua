-- Append to the streams of gateways, numbered by their counters.
-- KEYS: (gateway, stream, router) for each gateway. ARGV: number of the batch or 0, entries of a
-- stream at most, life in ms, 1 if the incarnation is part of a stream's name, then for each gateway
-- the count of its entries and (kind, users, except connection, body, news) for each. The kind 'news'
-- is for gateways that know it.
-- Returns for each how many were appended; -1 for a gateway whose keys are gone. Nothing is made
-- here that the gateway has not made itself: it finds out, and tells its connections. A batch that
-- was appended before, and is tried again because the answer was lost, is not appended again.

-- The number is the entry's id as well. An id made of the time could be that of an entry before it,
-- if the stream is lost between the two and the clock has not moved on: the gateway, which reads
-- what is above the last id that it knows, would not be given the entry. A stream that a server of
-- version 0.1.0 has appended to has ids above all numbers, and goes on with the time.
local function append(stream, entries_max, number, ...)
  local added = redis.pcall('XADD', stream, 'MAXLEN', '=', entries_max, number .. '-0', 'n', number, ...)
  if type(added) == 'table' and added.err then
    redis.call('XADD', stream, 'MAXLEN', '=', entries_max, '*', 'n', number, ...)
  end
end

local batch, entries_max, life_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local answer = {}
local index = 5
for at = 1, #KEYS, 3 do
  local gateway, stream, router = KEYS[at], KEYS[at + 1], KEYS[at + 2]
  local count = tonumber(ARGV[index])
  local behind = index + 1 + 5 * count
  local known = redis.call('HMGET', gateway, 'incarnation', 'counter', 'news')
  if not known[1] or not known[2] then
    answer[#answer + 1] = -1
  elseif batch > 0 and tonumber(redis.call('GET', router) or 0) >= batch then
    answer[#answer + 1] = 0
  else
    if ARGV[4] == '1' then
      stream = stream .. ':' .. known[1]
    end
    local appended = 0
    for entry = index + 1, behind - 1, 5 do
      if known[3] or ARGV[entry] ~= 'news' then
        appended = appended + 1
        append(stream, entries_max, whole(known[2] + appended), 'k', ARGV[entry],
          'u', ARGV[entry + 1], 'x', ARGV[entry + 2], 'f', ARGV[entry + 3], 'w', ARGV[entry + 4])
      end
    end
    redis.call('HINCRBY', gateway, 'counter', appended)
    redis.call('PEXPIRE', stream, life_ms)
    if batch > 0 then
      -- Last: a batch that failed in the middle is tried again as a whole.
      redis.call('SET', router, batch, 'PX', 4 * life_ms)
    end
    answer[#answer + 1] = appended
  end
  index = behind
end
return answer
