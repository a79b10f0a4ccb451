"""A model's vocabulary: converts text to token ids and back."""
