#!/usr/bin/env bash
# Generates text with imp and only curl: gRPC is HTTP/2, a five-byte frame, and protobuf.
#
#     generate.sh [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]
#
# Needs bash, curl with HTTP/2, xxd and base64. It shows the wire format, and works on machines that have nothing else.
# Its limits: it knows only the few fields below, reads a byte at a time, and has no TLS. `imp call` has no such limits.
set -euo pipefail
target="${1:-127.0.0.1:50051}" prompt="${2-Once upon a time}" max_tokens="${3:-64}" deadline="${4:-30}"

# --- writing protobuf: everything is hexadecimal text here, two digits a byte -----------------------------------

# A number: seven bits a byte, the lowest first. The high bit means that another byte follows.
varint() {
  local n="$1"
  while ((n > 127)); do
    printf '%02x' $((n & 127 | 128))
    n=$((n >> 7))
  done
  printf '%02x' "$n"
}

# Field NUMBER holding bytes (a string, a message): key, length, bytes.
bytes_field() { # NUMBER HEX
  varint $(($1 << 3 | 2))
  varint $((${#2} / 2))
  printf '%s' "$2"
}

# Field NUMBER holding a whole number.
number_field() { # NUMBER VALUE
  varint $(($1 << 3))
  varint "$2"
}

hex() { xxd -p | tr -d '\n'; }
unhex() { xxd -r -p; }

# --- reading protobuf ----------------------------------------------------------------------------------------------

# Puts the number at the beginning of HEX into $value, and the remainder into $rest.
take_varint() { # HEX
  local byte shift=0
  value=0 rest="$1"
  while :; do
    byte=$((16#${rest:0:2}))
    rest="${rest:2}"
    value=$((value | (byte & 127) << shift))
    ((byte & 128)) || return 0
    shift=$((shift + 7))
  done
}

# Prints every field NUMBER of message HEX, one a line: bytes as hexadecimal, numbers as they are.
fields() { # HEX NUMBER
  local message="$1" number kind
  while [ -n "$message" ]; do
    take_varint "$message"
    number=$((value >> 3)) kind=$((value & 7)) message="$rest"
    case "$kind" in
      0) take_varint "$message"; message="$rest" ;;
      1) value="${message:0:16}" message="${message:16}" ;;
      2) take_varint "$message"; message="${rest:$((value * 2))}" value="${rest:0:$((value * 2))}" ;;
      5) value="${message:0:8}" message="${message:8}" ;;
      *) echo "a field of kind $kind is no protobuf" >&2; return 1 ;;
    esac
    if [ "$number" = "$2" ]; then echo "$value"; fi
  done
}

# --- the call ------------------------------------------------------------------------------------------------------

# GenerateRequest: text = 3, sampling = 7 {temperature = 1, a float: 0}, stop = 8 {max_tokens = 1}.
request="$(bytes_field 3 "$(printf '%s' "$prompt" | hex)")"
request+="$(bytes_field 7 "0d00000000")"
request+="$(bytes_field 8 "$(number_field 1 "$max_tokens")")"
# The frame: a zero (not compressed), then the length in four bytes.
frame="00$(printf '%08x' $((${#request} / 2)))$request"

headers="$(mktemp)"
trap 'rm -f "$headers"' EXIT
case "$target" in
  unix://*) where=(--unix-socket "${target#unix://}" "http://localhost/imp.v1.InferenceService/Generate") ;;
  *) where=("http://$target/imp.v1.InferenceService/Generate") ;;
esac

# The deadline travels with the call, in milliseconds: when it passes, the server stops its work, too.
call() {
  unhex <<<"$frame" | curl --silent --show-error --no-buffer --http2-prior-knowledge --data-binary @- \
    --header 'content-type: application/grpc' --header 'te: trailers' \
    --header "grpc-timeout: $(awk "BEGIN { printf \"%d\", $deadline * 1000 }")m" \
    --dump-header "$headers" "${where[@]}"
}

# Frames follow each other, and a read may end inside one. Prints one line of hexadecimal for each frame.
frames() {
  local buffer="" byte length
  while read -r byte; do
    buffer+="$byte"
    ((${#buffer} >= 10)) || continue
    length=$((16#${buffer:2:8}))
    ((${#buffer} == 10 + length * 2)) || continue
    echo "${buffer:10}"
    buffer=""
  done < <(stdbuf -oL xxd -p -c 1)
}

# GenerateResponse: chunk = 2 {text = 4}, finished = 3 {text = 4}.
call | frames | while read -r message; do
  for part in $(fields "$message" 2) $(fields "$message" 3); do
    for text in $(fields "$part" 4); do unhex <<<"$text"; done
  done
done
echo

# The trailers have the status. curl writes them after the headers.
trailer() { tr -d '\r' <"$headers" | sed -n "s/^$1: //p" | tail -n 1; }
code="$(trailer grpc-status)"
if [ "$code" = 0 ]; then exit 0; fi
names=(OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
  RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
  UNAUTHENTICATED)
# google.rpc.Status: details = 3, each {type_url = 1, value = 2}; ErrorInfo {reason = 1}.
reason=""
details="$(trailer grpc-status-details-bin | tr -d '=')"
if [ -n "$details" ]; then
  while ((${#details} % 4)); do details+="="; done
  for detail in $(fields "$(base64 --decode <<<"$details" | hex)" 3); do
    if [ "$(fields "$detail" 1 | unhex)" = type.googleapis.com/google.rpc.ErrorInfo ]; then
      reason=" $(fields "$(fields "$detail" 2)" 1 | unhex)"
    fi
  done
fi
message="$(trailer grpc-message)"  # percent-encoded, such as %41
printf '%s%s: %b\n' "${names[${code:-2}]:-UNKNOWN}" "$reason" "${message//%/\\x}" >&2
exit 1
