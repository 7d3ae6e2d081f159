-- Tell one gateway something.
-- ARGV: gateway, entries of a stream at most, life in ms, kind, body.
-- Returns 0 if its keys are gone: then it was told nothing.
if append(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], '', '', ARGV[5]) then
  return 1
end
return 0
