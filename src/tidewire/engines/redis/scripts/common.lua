-- What the scripts share; it stands before each of them. KEYS[1] is the prefix of all keys.
--
--   route:<user>               hash: connection -> "<gateway> <expires at ms> <device>"
--   gateway:<id>               hash: incarnation, counter; made by the gateway itself; news: it
--                              knows entries of that kind
--   stream:<id>:<incarnation>  what is pushed to it; every entry carries its number n
--   gateways                   sorted set: id by when it expires
--   router:<id>                the number of the last batch that a router has pushed
--   lease:<chat>              the gateway that appends to a hot chat
--   limit:<key>                when a limit is as if unused, in microseconds
--
-- Times are this server's own: the clocks of gateways do not matter.

local prefix = KEYS[1]

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

local function route_key(user)
  return prefix .. 'route:' .. user
end

local function gateway_key(gateway)
  return prefix .. 'gateway:' .. gateway
end

local function stream_key(gateway, incarnation)
  return prefix .. 'stream:' .. gateway .. ':' .. incarnation
end

local GATEWAYS = prefix .. 'gateways'

-- The routes of a user that have not expired, as {connection, gateway, device}. Those that have are
-- forgotten: the key lives on with the user's other routes, and a crash unregisters nothing.
local function live_routes(user, now_ms)
  local found = {}
  local flat = redis.call('HGETALL', route_key(user))
  for index = 1, #flat, 2 do
    local gateway, expires_at_ms, device = flat[index + 1]:match('^(%S+) (%d+) (.*)$')
    if gateway and tonumber(expires_at_ms) > now_ms then
      found[#found + 1] = {flat[index], gateway, device}
    else
      redis.call('HDEL', route_key(user), flat[index])
    end
  end
  return found
end

local function put_route(user, connection, gateway, device, now_ms, life_ms)
  local key = route_key(user)
  redis.call('HSET', key, connection, gateway .. ' ' .. whole(now_ms + life_ms) .. ' ' .. device)
  redis.call('PEXPIRE', key, life_ms)
end

-- Is what the gateway made still there, and its own?
local function is_own(gateway, incarnation)
  return redis.call('HGET', gateway_key(gateway), 'incarnation') == incarnation
    and redis.call('ZSCORE', GATEWAYS, gateway) ~= false
end

-- Append an entry to a gateway's stream, numbered by its counter. Nothing is made here that the
-- gateway has not made itself: one whose keys are gone finds out, and tells its connections.
local function append(gateway, entries_max, life_ms, kind, users, except, body, news)
  local known = redis.call('HMGET', gateway_key(gateway), 'incarnation', 'counter')
  if not known[1] or not known[2] then
    return false
  end
  local number = redis.call('HINCRBY', gateway_key(gateway), 'counter', 1)
  local stream = stream_key(gateway, known[1])
  redis.call('XADD', stream, 'MAXLEN', '=', entries_max, '*',
    'n', number, 'k', kind, 'u', users, 'x', except, 'f', body, 'w', news or '')
  redis.call('PEXPIRE', stream, life_ms)
  return true
end
