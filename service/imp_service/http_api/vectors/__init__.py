"""Vectors of texts, and rankings of documents, in the forms of OpenAI, Cohere, Jina, vLLM and TEI."""
