-- Health of a NodePool, of napkeeper and of Karpenter.
-- Degraded is what somebody must correct before nodes are launched for it. A roll is Healthy, however long it takes.

local conditions = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    -- One about an earlier version says nothing about this one. There is no status.observedGeneration.
    local observed = condition.observedGeneration
    if observed == nil or observed == obj.metadata.generation then
      conditions[condition.type] = condition
    end
  end
end

-- Those of these that are False, each with its message.
local function failing(kinds)
  local found = {}
  for _, kind in ipairs(kinds) do
    local condition = conditions[kind]
    if condition ~= nil and condition.status == "False" then
      local message = condition.message
      if message == nil or message == "" then
        message = condition.reason or "False"
      end
      table.insert(found, kind .. ": " .. message)
    end
  end
  return table.concat(found, "; ")
end

if obj.metadata.deletionTimestamp ~= nil then
  local left = failing({ "NodesRemoved" })
  return { status = "Progressing", message = left ~= "" and left or "Pending deletion" }
end

local ready = conditions["Ready"]
if ready == nil or ready.status == "Unknown" then
  return { status = "Progressing", message = "Waiting for the controller to check this version" }
end

if ready.status == "False" then
  local class = conditions["NodeClassReady"]
  local message = failing({ "ValidationSucceeded", "NodeClassReady" })
  -- Karpenter says False although its AKSNodeClass has not been checked yet.
  if class ~= nil and class.reason == "NodeClassReadinessUnknown" and failing({ "ValidationSucceeded" }) == "" then
    return { status = "Progressing", message = message }
  end
  return { status = "Degraded", message = message ~= "" and message or ready.message or "" }
end

-- Neither counts for Ready, and both stop launches. As NodePools are in the last wave, they fail no sync.
local stopped = failing({ "LaunchesAllowed", "NodeRegistrationHealthy" })
if stopped ~= "" then
  return { status = "Degraded", message = stopped }
end

return { status = "Healthy", message = failing({ "NodesUpToDate", "ReplacementsEffective" }) }
