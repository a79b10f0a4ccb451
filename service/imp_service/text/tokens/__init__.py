"""A model's vocabulary: text to token ids and back."""
