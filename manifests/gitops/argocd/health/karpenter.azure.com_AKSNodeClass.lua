-- Health of an AKSNodeClass, of napkeeper and of Karpenter's Azure provider.

local ready
local others = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    -- One about an earlier version says nothing about this one. There is no status.observedGeneration.
    local observed = condition.observedGeneration
    if observed == nil or observed == obj.metadata.generation then
      if condition.type == "Ready" then
        ready = condition
      else
        table.insert(others, condition)
      end
    end
  end
end

if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = "Pending deletion" }
end
if ready == nil or ready.status == "Unknown" then
  return { status = "Progressing", message = "Waiting for the controller to check this version" }
end
if ready.status == "True" then
  return { status = "Healthy", message = "" }
end

-- Ready of the Azure provider names the conditions that are False, and these say why.
local found = {}
local is_upgrade = true
for _, condition in ipairs(others) do
  if condition.status == "False" then
    local message = condition.message
    if message == nil or message == "" then
      message = condition.reason or "False"
    end
    table.insert(found, condition.type .. ": " .. message)
    is_upgrade = is_upgrade and condition.reason == "KubernetesUpgrade"
  end
end
-- The cluster has another Kubernetes version, and the images for it are being looked up.
if #found > 0 and is_upgrade then
  return { status = "Progressing", message = table.concat(found, "; ") }
end
return { status = "Degraded", message = #found > 0 and table.concat(found, "; ") or ready.message or "" }
