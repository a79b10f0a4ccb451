"""Makes the built-in demo model: corpus, vocabulary, training, export, golden data; never imported by the service."""
