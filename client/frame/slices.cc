#include "client/frame/slices.h"

#include <utility>

#include "core/io/rows.h"

namespace hyperserve {

absl::StatusOr<RowsToSend> ReadRowsToSend(Client& client, const std::string& input) {
  RowsToSend task;
  HS_ASSIGN_OR_RETURN(task.format, FormatFromFlags());
  HS_ASSIGN_OR_RETURN(task.plan, PlanFromText("plan", absl::GetFlag(FLAGS_plan)));
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadInput(input, absl::GetFlag(FLAGS_tensor)));
  HS_ASSIGN_OR_RETURN(task.model, ChooseModel(client));
  HS_ASSIGN_OR_RETURN(const HostTensor rows, FitInput(std::move(file), InputShape(task.model),
                                                      absl::GetFlag(FLAGS_limit)));
  task.rows = ForTier(rows, task.plan.tier);
  HS_ASSIGN_OR_RETURN(task.terms, RowTermsFromFlags(task.model, task.plan, task.rows.shape[0]));
  return task;
}

}  // namespace hyperserve
