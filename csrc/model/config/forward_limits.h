// The sizes for which a forward pass is prepared.
#pragma once

namespace imp {

struct ForwardLimits {
  int max_rows = 0;          // rows of one batch
  int max_logits_rows = 0;   // of those, rows with logits; also the most sequences of a batch
  bool is_watched = false;   // its attention may be watched
  bool takes_media = false;  // batches may have placed rows, rows that see keys after their own, and several positions
};

}  // namespace imp
