#include "server/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "server/rpc/call.h"
#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"
#include "server/rpc/ledgers/reply_ledger.h"

namespace hyperserve {
namespace {

namespace v1 = grpc::reflection::v1;
using Request = v1::ServerReflectionRequest;
using Response = v1::ServerReflectionResponse;
using Services = std::shared_ptr<const std::vector<std::string>>;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

void Append(const FileDescriptor& file, std::set<const FileDescriptor*>& seen,
            v1::FileDescriptorResponse* files) {
  if (!seen.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  proto.SerializeToString(files->add_file_descriptor_proto());
  for (int i = 0; i < file.dependency_count(); ++i) Append(*file.dependency(i), seen, files);
}

void Answer(const FileDescriptor* file, const std::string& asked, Response* response) {
  if (file == nullptr) {
    response->mutable_error_response()->set_error_code(grpc::NOT_FOUND);
    response->mutable_error_response()->set_error_message(
        "nothing here is called '" + asked.substr(0, 200) + "'; list_services tells the services");
    return;
  }
  std::set<const FileDescriptor*> seen;
  Append(*file, seen, response->mutable_file_descriptor_response());
}

Response ResponseTo(const Request& request, const std::vector<std::string>& services) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case Request::kFileByFilename:
      Answer(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(),
             &response);
      break;
    case Request::kFileContainingSymbol:
      Answer(pool.FindFileContainingSymbol(request.file_containing_symbol()),
             request.file_containing_symbol(), &response);
      break;
    case Request::kAllExtensionNumbersOfType:  // our protos have none
      response.mutable_all_extension_numbers_response()->set_base_type_name(
          request.all_extension_numbers_of_type());
      break;
    default:
      Answer(nullptr, request.file_containing_extension().containing_type(), &response);
  }
  return response;
}

// Answers one question after the other, until deadline_max. It counts as an open call, and its
// answers as replies until they are read. Deletes itself when gRPC is done with it.
class ReflectionStream final : public grpc::ServerGenericBidiReactor {
 public:
  ReflectionStream(Services services, Environment* environment,
                   grpc::GenericCallbackServerContext* context)
      : services_(std::move(services)), environment_(environment), peer_(PeerOf(*context)) {
    const absl::Status open = environment_->calls.Join(peer_);
    counted_ = open.ok();
    if (!counted_) {
      Finish(ToGrpc(open));
      return;
    }
    life_->context = context;
    alarm_.Set(std::chrono::system_clock::now() + environment_->limits.deadline_max,
               [life = life_](bool fired) {
                 const std::lock_guard lock(life->mutex);
                 if (fired && life->context != nullptr) life->context->TryCancel();
               });
    StartRead(&asked_);
  }

 private:
  // What an alarm that fires late may touch.
  struct Life {
    std::mutex mutex;
    grpc::GenericCallbackServerContext* context = nullptr;  // guarded by mutex; null: it is over
  };

  void OnReadDone(bool ok) override {
    if (!ok) {  // the client has no more questions, or is gone
      Finish(grpc::Status::OK);
      return;
    }
    if (const absl::Status unread =
            environment_->replies.Check(peer_, environment_->limits.request_bytes_max);
        !unread.ok()) {
      Finish(ToGrpc(unread));
      return;
    }
    Request request;
    grpc::ProtoBufferReader reader(&asked_);
    if (!request.ParseFromZeroCopyStream(&reader)) {
      Finish({grpc::INVALID_ARGUMENT, "the request is no ServerReflectionRequest"});
      return;
    }
    const Response response = ResponseTo(request, *services_);
    const auto bytes = static_cast<int64_t>(response.ByteSizeLong());
    hold_ = environment_->replies.Take(peer_, bytes);
    answer_.Clear();
    grpc::ProtoBufferWriter writer(&answer_, kBlockBytes, static_cast<int>(bytes));
    (void)response.SerializeToZeroCopyStream(&writer);
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    hold_ = {};
    if (ok) {
      StartRead(&asked_);
    } else {
      Finish({grpc::CANCELLED, "the client went away"});
    }
  }
  void OnDone() override {
    {
      const std::lock_guard lock(life_->mutex);
      life_->context = nullptr;
    }
    if (counted_) environment_->calls.Leave(peer_);
    delete this;
  }

  static constexpr int kBlockBytes = 64 << 10;
  const Services services_;
  Environment* const environment_;
  const std::string peer_;  // the client's address without the port
  const std::shared_ptr<Life> life_ = std::make_shared<Life>();
  bool counted_ = false;
  grpc::Alarm alarm_;
  grpc::ByteBuffer asked_, answer_;
  ReplyLedger::Hold hold_;  // until the client has read the answer
};

}  // namespace

std::vector<CallService> MakeReflectionServices(std::vector<std::string> services,
                                                Environment* environment) {
  // The linker leaves out descriptors that nobody names.
  const auto name_of = [](const google::protobuf::Descriptor* message) {
    return message->file()->service(0)->full_name();
  };
  const std::vector<std::string> versions = {
      name_of(Request::descriptor()),
      name_of(grpc::reflection::v1alpha::ServerReflectionRequest::descriptor())};
  services.push_back(name_of(grpc::health::v1::HealthCheckRequest::descriptor()));
  services.insert(services.end(), versions.begin(), versions.end());
  const Services listed = std::make_shared<const std::vector<std::string>>(std::move(services));
  std::vector<CallService> made;
  for (const std::string& version : versions) {
    made.push_back(
        {.name = version,
         .methods = {{"ServerReflectionInfo",
                      [listed, environment](grpc::GenericCallbackServerContext* context) {
                        return new ReflectionStream(listed, environment, context);
                      }}}});
  }
  return made;
}

}  // namespace hyperserve
