# frozen_string_literal: true

# What both Ruby examples share: a connection to a server, and failures in words.
$LOAD_PATH << File.join(__dir__, "build") # where `make` puts the stubs
require "google/protobuf/well_known_types"
require "google/rpc/error_details_pb"
require "imp/v1/inference_services_pb"

module ImpClient
  # Returns a stub for a target: host:port or unix:///path.
  def self.connect(target)
    Imp::V1::InferenceService::Stub.new(target, :this_channel_is_insecure)
  end

  # Returns the reason, which programs test, such as "CONTEXT_TOO_LONG"; nil if the failure is not one of imp's.
  def self.reason(failure)
    details(failure, Google::Rpc::ErrorInfo).first&.reason
  end

  # Returns "OUT_OF_RANGE CONTEXT_TOO_LONG: ...", and a line for each field that is wrong.
  def self.explain(failure)
    code = GRPC::Core::StatusCodes.constants.find { |name| GRPC::Core::StatusCodes.const_get(name) == failure.code }
    head = [code, reason(failure)].compact.join(" ")
    violations = details(failure, Google::Rpc::BadRequest).flat_map { |bad| bad.field_violations.to_a }
    message = failure.details.dup.force_encoding(Encoding::UTF_8) # gRPC hands it out as bytes
    ["#{head}: #{message}", *violations.map { |v| "  #{v.field}: #{v.description}" }].join("\n")
  end

  # Returns the details of this type. A server sends them in the metadata grpc-status-details-bin.
  def self.details(failure, type)
    status = failure.to_rpc_status
    status ? status.details.select { |detail| detail.is(type) }.map { |detail| detail.unpack(type) } : []
  end
  private_class_method :details
end
