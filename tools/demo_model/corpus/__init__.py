"""The demo model's corpus: its own generated text, Jane Austen's novels and WordNet's glosses."""
