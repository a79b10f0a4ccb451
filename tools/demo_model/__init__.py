"""Makes the built-in demo model: corpus, vocabulary, training, export and its golden data; run by people, never imported."""
