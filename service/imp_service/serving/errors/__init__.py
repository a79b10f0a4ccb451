"""The failures of calls, independent of the transport."""
