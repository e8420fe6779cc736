// What ListModels, GetModel and GetServerInfo tell. Pure.
#pragma once

#include "hyperserve/v1/hyperserve.pb.h"
#include "server/registry/served_model.h"
#include "server/rpc/environment.h"

namespace hyperserve {

void FillSummary(const ServedModel& served, v1::ModelSummary* summary);
void FillModel(const ServedModel& served, v1::GetModelReply* reply);
void FillServerInfo(const ServerFacts& facts, double uptime_seconds, v1::GetServerInfoReply* reply);

}  // namespace hyperserve
