"""Replies: messages with results, statuses of failures, and the load."""
