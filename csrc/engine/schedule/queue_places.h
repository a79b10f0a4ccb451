// The places of the queue, in sequences and in tokens of prompts, and which tenants hold them.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace imp {

// Where one more run of a tenant would stand.
struct QueuePlace {
  int n_left = 0;   // sequences of the tenant that may still come
  int n_ahead = 0;  // sequences that begin before it at the most, since tenants take turns
};

// If the tenants that wait are several, each of them has an equal part of the queue: where others hold all places, a
// tenant gets places in addition to them, up to twice as many in all. So no tenant keeps another one out.
class QueuePlaces {
 public:
  QueuePlaces(int most, std::int64_t most_tokens) : most_(most), most_tokens_(most_tokens) {}

  // Throws ResourceExhausted(QUEUE_FULL).
  void take(const std::string& tenant, int n_sequences, std::int64_t n_tokens);
  void give_back(const std::string& tenant, int n_sequences, std::int64_t n_tokens);

  // The place after n_coming sequences that are about to come, n_own of them the tenant's.
  QueuePlace place_of(const std::string& tenant, int n_own, int n_coming) const;
  int n_waiting() const noexcept { return all_.n_sequences; }
  std::int64_t n_tokens() const noexcept { return all_.n_tokens; }

 private:
  struct Held {
    int n_sequences = 0;
    std::int64_t n_tokens = 0;
  };
  Held held_by(const std::string& tenant) const;
  int n_tenants_with(const std::string& tenant) const;
  bool has_room_for(const std::string& tenant, std::int64_t n_tokens) const;

  int most_;
  std::int64_t most_tokens_;
  Held all_;
  std::unordered_map<std::string, Held> tenants_;  // those that hold places
};

}  // namespace imp
