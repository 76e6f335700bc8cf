-- Health of an Application within another, which Argo CD finds but does not count by itself: with it the wave of one waits for
-- that before.
local health = obj.status ~= nil and obj.status.health or nil
if health == nil or health.status == nil then
  return { status = "Progressing", message = "Waiting for the first comparison" }
end
return { status = health.status, message = health.message or "" }
