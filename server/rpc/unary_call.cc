#include "server/rpc/unary_call.h"

namespace hyperserve {

void UnaryCall::Answer(const absl::Status& status) {
  if (!status.ok()) {
    Finish(call().End(status));
    return;
  }
  hold_ = Count(static_cast<int64_t>(messages_.reply->ByteSizeLong()));
  reply_ = Serialize(*messages_.reply);
  messages_.reply->Clear();
  CancelAt(call().deadline());
  StartWriteAndFinish(&reply_, grpc::WriteOptions(), call().End(status));
}

}  // namespace hyperserve
