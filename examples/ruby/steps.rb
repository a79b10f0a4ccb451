# frozen_string_literal: true

# Generates one token per call. The program sees each token and may choose another.
#
#     ruby steps.rb [TARGET [PROMPT [STEPS]]]
require_relative "imp_client"

target, prompt, steps = ARGV
CLIENT = ImpClient.connect(target || "127.0.0.1:50051")

def deadline
  Time.now + 30
end

# Evaluates the token that was sampled last, because it sends no other, and samples the next one.
#
# The position is the number of tokens that the session holds. It makes it safe to send a step again after its reply
# was lost: the server returns the reply again and does not evaluate the token twice.
def step(session_id, position)
  request = Imp::V1::DecodeStepRequest.new(steps: [{ session_id: session_id, position: position }])
  result = CLIENT.decode_step(request, deadline: deadline).results.first # one for each session of the batch
  raise "#{result.error.reason}: #{result.error.message}" if result.result == :error

  result.output
end

begin
  # Opens a session: the server evaluates the prompt once and keeps it in its cache.
  opening = Imp::V1::PrefillRequest.new(text: prompt || "Once upon a time", sampling: { temperature: 0 })
  opened = CLIENT.prefill(opening, deadline: deadline)
  session_id = opened.session_id
  output = opened.output
  print output.text
  (Integer(steps || 16) - 1).times do
    break if output.eos

    output = step(session_id, output.position)
    print output.text
    $stdout.flush
  end
  puts

  begin
    # A second writer of the session is refused, because its position is out of date.
    late = Imp::V1::PrefillRequest.new(session_id: session_id, token_ids: { ids: [1] }, position: 1)
    CLIENT.prefill(late, deadline: deadline)
  rescue GRPC::BadStatus => e
    raise unless ImpClient.reason(e) == "POSITION_MISMATCH"

    warn ImpClient.explain(e)
  end

  # Frees the cache now. Without it the server does so when the session's time to live has passed.
  release = Imp::V1::ReleaseSessionRequest.new(session_id: session_id)
  released = CLIENT.release_session(release, deadline: deadline).released
  warn "[#{output.position} tokens held, released: #{released}]"
rescue GRPC::BadStatus => e
  warn "\n#{ImpClient.explain(e)}"
  exit 1
end
