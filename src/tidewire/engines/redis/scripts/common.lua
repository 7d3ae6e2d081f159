-- What the scripts share; it stands before each of them. A script touches the keys that it is given
-- and no others, so that Redis Cluster can run it: there the caller gives it keys of one tag.
-- On a single Redis one call has the keys of many, and what is between braces is not in the names:
--
--   route:{<tag>:}<user>         hash: connection -> "<gateway> <expires at ms> <device>"
--   gateway:<id>                 hash: incarnation, counter, news; made by the gateway itself
--   stream:<id>[:<incarnation>]  what is pushed to it; every entry carries its number n; in a cluster
--                                one for all incarnations
--   router:<id>:<router>         the number of the last batch that a router has appended to it
--   gateways{:<tag>}             sorted set: id by when it expires; in a cluster the same three times
--   lease:<chat>                 the gateway that appends to a hot chat; in a cluster <chat> is its tag
--   limit:{<tag>:}<key>          when a limit is as if unused, in microseconds
--
-- Times are the server's own that holds the key: the clocks of gateways do not matter.

local function time_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function time_ms()
  return math.floor(time_us() / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

-- The routes of a user that have not expired, as {connection, gateway, device}. Those that have are
-- forgotten: the key lives on with the user's other routes, and a crash unregisters nothing.
local function live_routes(key, now_ms)
  local found = {}
  local flat = redis.call('HGETALL', key)
  for index = 1, #flat, 2 do
    local gateway, expires_at_ms, device = flat[index + 1]:match('^(%S+) (%d+) (.*)$')
    if gateway and tonumber(expires_at_ms) > now_ms then
      found[#found + 1] = {flat[index], gateway, device}
    else
      redis.call('HDEL', key, flat[index])
    end
  end
  return found
end

local function put_route(key, connection, gateway, device, now_ms, life_ms)
  redis.call('HSET', key, connection, gateway .. ' ' .. whole(now_ms + life_ms) .. ' ' .. device)
  redis.call('PEXPIRE', key, life_ms)
end
