-- Health of every kind in the group fairlead.dev, from the conditions Ready, Stalled and Paused.

-- Kinds without conditions: records that Fairlead keeps, and objects that only other objects refer to.
local plain = { BackendRecord = true, Drill = true, DrillSchedule = true, ImportedService = true, LoadBalancerRoute = true, NodePool = true }
-- Reasons of a false Ready that end without a correction: an answer, or another object, is awaited.
local awaited = {
  Pending = true,
  NoProxyConnected = true,
  NotPublished = true,
  NoTargets = true,
  BackendNotFound = true,
  NoSuchClass = true,
  NoSuchZone = true,
  NoSuchIssuer = true,
  NoSuchLoadBalancer = true,
  NoMachines = true,
}

local function health(status, message)
  return { status = status, message = message }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "The object is being deleted")
end
if plain[obj.kind] then
  return health("Healthy", "")
end
if obj.status == nil or obj.status.conditions == nil then
  return health("Progressing", "Waiting for the first status")
end
if obj.metadata.generation ~= nil and obj.status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "Waiting for the status of the present spec")
end

local by_type = {}
for _, condition in ipairs(obj.status.conditions) do
  by_type[condition.type] = condition
end
local ready, stalled, paused = by_type.Ready, by_type.Stalled, by_type.Paused

local function text(condition)
  if condition.message ~= nil and condition.message ~= "" then
    return condition.message
  end
  return condition.reason or condition.type
end

if stalled ~= nil and stalled.status == "True" then
  return health("Degraded", text(stalled))
end
if ready == nil then
  return health("Progressing", "Waiting for the condition Ready")
end
if ready.status == "True" then
  return health("Healthy", text(ready))
end
if paused ~= nil and paused.status == "True" then
  return health("Suspended", text(paused))
end
if ready.status == "Unknown" or awaited[ready.reason] then
  return health("Progressing", text(ready))
end
return health("Degraded", text(ready))
