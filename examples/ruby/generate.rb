# frozen_string_literal: true

# Generates text with imp and prints it as it comes.
#
#     ruby generate.rb [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]
require_relative "imp_client"

target, prompt, max_tokens, deadline = ARGV
client = ImpClient.connect(target || "127.0.0.1:50051")
request = Imp::V1::GenerateRequest.new(
  text: prompt || "Once upon a time",
  # A field that is not set takes the model's default; zero means zero.
  sampling: { temperature: 0 },
  stop: { max_tokens: Integer(max_tokens || 64) }
)

begin
  # A call without a deadline may wait forever. When the deadline passes, the server stops its work, too.
  client.generate(request, deadline: Time.now + Float(deadline || 30)).each do |response|
    case response.event # newer servers may send other events; they are ignored
    when :started
      warn "[#{response.started.model}, seed #{response.started.seed}]"
    when :chunk
      print response.chunk.text
      $stdout.flush
    when :finished
      # The server holds text back while it may be the beginning of a stop string. The rest comes here.
      puts response.finished.text
      warn "[#{response.finished.reason}, #{response.finished.usage&.output_tokens} tokens]"
    end
  end
rescue GRPC::BadStatus => e
  warn "\n#{ImpClient.explain(e)}"
  exit 1
end
