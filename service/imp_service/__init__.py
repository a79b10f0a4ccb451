"""imp: an LLM inference microservice."""

__version__ = "0.1.0"
