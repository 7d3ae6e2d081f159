-- Push a batch: each to the gateways at which its users are connected, one entry a gateway.
-- ARGV: router, number of the batch, entries of a stream at most, life in ms, then for each push
-- (kind, except connection, body, news, count of users, users...); a count of -1 is for every
-- gateway. The kind 'news' is for gateways that know it, other than the router's own.
-- Returns {entries appended, entries for gateways whose keys are gone}. A batch that was pushed
-- before, and is tried again because the answer was lost, is not pushed again.
local router, batch = prefix .. 'router:' .. ARGV[1], tonumber(ARGV[2])
local entries_max, life_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
if tonumber(redis.call('GET', router) or 0) >= batch then
  return {0, 0}
end

local now_ms = time_ms()
local gateways_by_user = {}
local appended, refused = 0, 0

local function gateways_of(user)
  local gateways = gateways_by_user[user]
  if not gateways then
    gateways = {}
    local seen = {}
    for _, route in ipairs(live_routes(user, now_ms)) do
      if not seen[route[2]] then
        seen[route[2]] = true
        gateways[#gateways + 1] = route[2]
      end
    end
    gateways_by_user[user] = gateways
  end
  return gateways
end

local function put(gateway, kind, users, except, body, news)
  if kind == 'news' then
    if gateway == ARGV[1] or not redis.call('HGET', gateway_key(gateway), 'news') then
      return
    end
    users = ''
  end
  if append(gateway, entries_max, life_ms, kind, users, except, body, news) then
    appended = appended + 1
  else
    refused = refused + 1
  end
end

local index = 5
while index <= #ARGV do
  local kind, except, body = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local news, count = ARGV[index + 3], tonumber(ARGV[index + 4])
  index = index + 5
  if count < 0 then
    redis.call('ZREMRANGEBYSCORE', GATEWAYS, '-inf', whole(now_ms))
    for _, gateway in ipairs(redis.call('ZRANGE', GATEWAYS, 0, -1)) do
      put(gateway, kind, '', except, body, news)
    end
  else
    local order, users_by_gateway = {}, {}
    for at = index, index + count - 1 do
      for _, gateway in ipairs(gateways_of(ARGV[at])) do
        local users = users_by_gateway[gateway]
        if not users then
          users = {}
          users_by_gateway[gateway] = users
          order[#order + 1] = gateway
        end
        users[#users + 1] = ARGV[at]
      end
    end
    for _, gateway in ipairs(order) do
      put(gateway, kind, table.concat(users_by_gateway[gateway], ' '), except, body, news)
    end
    index = index + count
  end
end
-- Last: a batch that failed in the middle is tried again as a whole.
redis.call('SET', router, batch, 'PX', 4 * life_ms)
return {appended, refused}
