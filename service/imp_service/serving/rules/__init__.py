"""The rules of request fields, independent of the API."""
