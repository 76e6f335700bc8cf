-- Health of a NodeClaim, of napkeeper and of Karpenter. Argo CD shows those that have an owner reference to their NodePool, as
-- Karpenter's have; it counts for no Application.
-- Its spec never changes, and its conditions are not written again for a new generation: that is not compared.

local conditions = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    conditions[condition.type] = condition
  end
end

local function text(kind)
  local condition = conditions[kind]
  local message = condition.message
  if message == nil or message == "" then
    message = condition.reason or condition.status
  end
  return kind .. ": " .. message
end

if obj.metadata.deletionTimestamp ~= nil then
  -- The last step that has begun: the instance, its volumes, the drain.
  for _, kind in ipairs({ "InstanceTerminating", "VolumesDetached", "Drained" }) do
    if conditions[kind] ~= nil then
      return { status = "Progressing", message = text(kind) }
    end
  end
  return { status = "Progressing", message = "Pending deletion" }
end

local steps = { "Launched", "Registered", "Initialized" }
for _, kind in ipairs(steps) do
  if conditions[kind] ~= nil and conditions[kind].status == "False" then
    return { status = "Degraded", message = text(kind) }
  end
end
for _, kind in ipairs(steps) do
  if conditions[kind] == nil then
    return { status = "Progressing", message = "Waiting to be " .. kind }
  end
  if conditions[kind].status ~= "True" then
    return { status = "Progressing", message = text(kind) }
  end
end

local ready = conditions["Ready"]
if ready == nil or ready.status ~= "True" then
  return { status = "Progressing", message = ready ~= nil and text("Ready") or "Waiting to be Ready" }
end
local consistent = conditions["ConsistentStateFound"]
if consistent ~= nil and consistent.status == "False" then
  return { status = "Degraded", message = text("ConsistentStateFound") }
end
local disruption = conditions["DisruptionReason"]
if disruption ~= nil and disruption.status == "True" then
  return { status = "Progressing", message = text("DisruptionReason") }
end
local drifted = conditions["Drifted"]
if drifted ~= nil and drifted.status == "True" then
  return { status = "Healthy", message = text("Drifted") }
end
return { status = "Healthy", message = "" }
