#include "server/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <memory>
#include <set>
#include <utility>

#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"

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

// Answers one question after the other. Deletes itself when gRPC is done with it.
class ReflectionStream final : public grpc::ServerGenericBidiReactor {
 public:
  explicit ReflectionStream(Services services) : services_(std::move(services)) {
    StartRead(&asked_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {  // the client has no more questions, or is gone
      Finish(grpc::Status::OK);
      return;
    }
    Request request;
    grpc::ProtoBufferReader reader(&asked_);
    if (!request.ParseFromZeroCopyStream(&reader)) {
      Finish({grpc::INVALID_ARGUMENT, "the request is no ServerReflectionRequest"});
      return;
    }
    const Response response = ResponseTo(request, *services_);
    answer_.Clear();
    grpc::ProtoBufferWriter writer(&answer_, kBlockBytes,
                                   static_cast<int>(response.ByteSizeLong()));
    (void)response.SerializeToZeroCopyStream(&writer);
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&asked_);
    } else {
      Finish({grpc::CANCELLED, "the client went away"});
    }
  }
  void OnDone() override { delete this; }

  static constexpr int kBlockBytes = 64 << 10;
  const Services services_;
  grpc::ByteBuffer asked_, answer_;
};

}  // namespace

CallService MakeReflectionService(std::vector<std::string> services) {
  // The linker leaves out descriptors that nobody names.
  services.push_back(
      grpc::health::v1::HealthCheckRequest::descriptor()->file()->service(0)->full_name());
  services.push_back("grpc.reflection.v1alpha.ServerReflection");
  services.push_back(v1::ServerReflection::service_full_name());
  const Services listed = std::make_shared<const std::vector<std::string>>(std::move(services));
  return {.name = v1::ServerReflection::service_full_name(),
          .methods = {{"ServerReflectionInfo", [listed](grpc::GenericCallbackServerContext*) {
                         return new ReflectionStream(listed);
                       }}}};
}

}  // namespace hyperserve
