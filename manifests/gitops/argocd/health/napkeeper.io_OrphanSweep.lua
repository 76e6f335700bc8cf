-- Health of an OrphanSweep. What it finds is no failure, and neither is mode Report: it is Degraded where it cannot do what its
-- mode says, and Suspended where it waits for a person.

if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = "Pending deletion" }
end
local status = obj.status
if status == nil or status.conditions == nil then
  return { status = "Progressing", message = "Waiting to be accepted" }
end
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "Waiting for this version to be accepted" }
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end
local function is(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end

-- A listing has failed, so that nothing is known.
if is("Ready", "False") then
  return { status = "Degraded", message = conditions["Ready"].message }
end
-- Azure denies it.
if is("Degraded", "True") then
  return { status = "Degraded", message = conditions["Degraded"].message }
end
-- The breaker has tripped, for example.
if is("Halted", "True") then
  return { status = "Suspended", message = conditions["Halted"].message }
end
if status.lastRun == nil then
  return { status = "Healthy", message = "Accepted; nothing has been observed yet" }
end
local cost = status.costPerMonth or "$0.00"
return { status = "Healthy", message = (status.orphans or 0) .. " orphans, " .. cost .. " per month" }
